# The FlatBuffers code of protocol.fbs; only flat_protocol.h includes it.
set(wire_generated ${CMAKE_BINARY_DIR}/generated/wire)
find_program(FLATC flatc REQUIRED)
add_custom_command(
  OUTPUT ${wire_generated}/protocol_generated.h
  COMMAND ${CMAKE_COMMAND} -E make_directory ${wire_generated}
  COMMAND ${FLATC} --cpp --scoped-enums -o ${wire_generated} ${dir}/protocol.fbs
  DEPENDS ${dir}/protocol.fbs
  COMMENT "flatc protocol.fbs"
  VERBATIM)
target_sources(quire_wire PRIVATE ${wire_generated}/protocol_generated.h)

# An engine without a model, for the tests of supervision: real processes that can be killed.
add_executable(wire_fake_engine ${dir}/fake_engine_main.cc)
target_link_libraries(wire_fake_engine PRIVATE quire_wire)
target_compile_definitions(wire_test PRIVATE QUIRE_FAKE_ENGINE="$<TARGET_FILE:wire_fake_engine>")
add_dependencies(wire_test wire_fake_engine)
