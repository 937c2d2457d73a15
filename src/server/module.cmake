target_compile_definitions(quire_server PRIVATE QUIRE_VERSION="${PROJECT_VERSION}")

# The front end over an engine without a model, for the API tests.
add_executable(quire_fake_server ${dir}/testing/fake_server_main.cc)
target_link_libraries(quire_fake_server PRIVATE quire_server)
