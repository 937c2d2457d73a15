# The kernels and their tests for a processor whose libraries are not installed: of src/base what the kernels call, {fmt}
# as headers only, and GoogleTest from the sources that Debian installs.
find_path(QUIRE_FMT_HEADERS fmt/format.h REQUIRED)
# Alone: beside it lie the headers of the C library of the machine that compiles.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/headers)
file(CREATE_LINK ${QUIRE_FMT_HEADERS}/fmt ${CMAKE_BINARY_DIR}/headers/fmt SYMBOLIC)
add_library(quire_base STATIC ${CMAKE_SOURCE_DIR}/src/base/aligned_buffer.cc ${CMAKE_SOURCE_DIR}/src/base/check.cc)
target_link_libraries(quire_base PUBLIC quire_flags)
target_include_directories(quire_base SYSTEM PUBLIC ${CMAKE_BINARY_DIR}/headers)
target_compile_definitions(quire_base PUBLIC FMT_HEADER_ONLY)
add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
quire_module(kernels DEPENDS base)
