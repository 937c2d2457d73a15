# One folder of src/ is one static library `quire_<name>`. What a file is follows from its name:
#   foo.h foo.cc     the library
#   foo_test.cc      part of the program `<name>_test` (GoogleTest)
#   foo_fuzz.cc      the libFuzzer program `<name>_foo_fuzz` (preset fuzz)
#   foo_bench.cc     part of the program `<name>_bench` (Google Benchmark)
#   foo_main.cc      a program; the module's own module.cmake names it

# Modules with threads of their own: their tests run under the thread sanitizer, too.
set(QUIRE_THREADED_MODULES base wire engine server)
add_custom_target(tsan_tests)

add_library(quire_flags INTERFACE)
target_include_directories(quire_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_BINARY_DIR}/generated)
target_compile_options(quire_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror
  $<$<CXX_COMPILER_ID:GNU>:-Wno-psabi -Wno-unknown-pragmas -Wno-maybe-uninitialized -Wno-missing-field-initializers>
  $<$<CXX_COMPILER_ID:Clang>:-Wno-missing-field-initializers -Wno-missing-designated-field-initializers>)
if(QUIRE_SANITIZE)
  target_compile_options(quire_flags INTERFACE -fsanitize=${QUIRE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(quire_flags INTERFACE -fsanitize=${QUIRE_SANITIZE})
endif()
if(QUIRE_FUZZ)
  target_compile_options(quire_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Parsing the standard library is most of what a source costs to compile: it is precompiled once for the modules and,
# with GoogleTest, once for the tests. The presets `tidy` and `gcc` go without, and so show what a file forgot to include.
option(QUIRE_PRECOMPILE "precompile the headers that most sources include" OFF)
set(QUIRE_COMMON_HEADERS <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <filesystem> <functional>
  <map> <memory> <mutex> <optional> <random> <span> <string> <string_view> <thread> <unordered_map> <utility> <variant>
  <vector> <fmt/format.h> <boost/json/value.hpp>)

# The first target of a kind makes the precompiled header, the others of the kind use it.
function(quire_precompile target first)
  if(NOT QUIRE_PRECOMPILE)
    return()
  endif()
  target_compile_options(${target} PRIVATE -Xclang -fno-pch-timestamp)  # for ccache
  if(target STREQUAL first)
    target_precompile_headers(${target} PRIVATE ${QUIRE_COMMON_HEADERS} ${ARGN})
  else()
    target_precompile_headers(${target} REUSE_FROM ${first})
  endif()
endfunction()

# quire_module(name [DEPENDS module…] [LIBRARIES target…])
function(quire_module name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LIBRARIES" ${ARGN})
  set(dir ${CMAKE_SOURCE_DIR}/src/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cc)
  include(${dir}/sources.cmake OPTIONAL)  # which of them to leave out
  set(library ${sources})
  list(FILTER library EXCLUDE REGEX "_(test|fuzz|bench|main)\\.cc$")
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  set(fuzzers ${sources})
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  set(benches ${sources})
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")

  list(TRANSFORM ARG_DEPENDS PREPEND quire_)
  if(library)
    add_library(quire_${name} STATIC ${library})
    target_link_libraries(quire_${name} PUBLIC quire_flags ${ARG_DEPENDS} ${ARG_LIBRARIES})
    if(NOT name STREQUAL kernels)  # whose sources have each their own instruction set
      quire_precompile(quire_${name} quire_base)
    endif()
  else()
    add_library(quire_${name} INTERFACE)
    target_link_libraries(quire_${name} INTERFACE quire_flags ${ARG_DEPENDS} ${ARG_LIBRARIES})
  endif()

  if(tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE quire_${name} GTest::gmock_main)
    quire_precompile(${name}_test base_test <gmock/gmock.h> <gtest/gtest.h>)
    # Tests read the repository's own data (the demo model) and, where it is there, the shared test data.
    target_compile_definitions(${name}_test PRIVATE QUIRE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    set(labels "")
    if(name IN_LIST QUIRE_THREADED_MODULES)
      set(labels threads)
      add_dependencies(tsan_tests ${name}_test)
    endif()
    # A test with "Slow" in its name takes more than a few seconds; `./run test quick` leaves it out.
    gtest_discover_tests(${name}_test TEST_PREFIX ${name}. TEST_FILTER -*Slow* DISCOVERY_TIMEOUT 60
                         PROPERTIES TIMEOUT 300 LABELS "${labels}")
    gtest_discover_tests(${name}_test TEST_PREFIX ${name}. TEST_FILTER *Slow* DISCOVERY_TIMEOUT 60
                         TEST_LIST ${name}_slow_tests PROPERTIES TIMEOUT 600 LABELS slow)
  endif()
  if(QUIRE_FUZZ)
    foreach(source ${fuzzers})
      cmake_path(GET source STEM stem)
      add_executable(${name}_${stem} ${source})
      target_link_libraries(${name}_${stem} PRIVATE quire_${name})
      target_link_options(${name}_${stem} PRIVATE -fsanitize=fuzzer)
      add_test(NAME fuzz.${name}.${stem} COMMAND ${name}_${stem} -max_total_time=1 -timeout=10 -rss_limit_mb=4096 -print_final_stats=0)
    endforeach()
  endif()
  # What the names above cannot say: generated sources, programs.
  include(${dir}/module.cmake OPTIONAL)
  if(benches)
    find_package(benchmark REQUIRED)
    add_executable(${name}_bench ${benches})
    target_link_libraries(${name}_bench PRIVATE quire_${name} benchmark::benchmark_main)
  endif()
endfunction()
