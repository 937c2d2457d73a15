# Included before the benchmark program exists; it reads the repository's own data.
set_property(SOURCE ${dir}/text_bench.cc APPEND PROPERTY COMPILE_DEFINITIONS QUIRE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
