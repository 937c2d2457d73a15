# Lets the Python tests in tests/weights call this module: rows in, rows out.
add_executable(weights_probe ${dir}/weights_probe_main.cc)
target_link_libraries(weights_probe PRIVATE quire_weights)
