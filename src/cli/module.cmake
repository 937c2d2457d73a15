# The program.
add_executable(quire ${dir}/quire_main.cc)
target_link_libraries(quire PRIVATE quire_cli)
target_compile_definitions(quire PRIVATE QUIRE_VERSION="${PROJECT_VERSION}")
