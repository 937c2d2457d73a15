# g++ fuses a·b + c on its own unless it is told not to, and would do so in one tile shape and not in another; every
# result must be the same bits in all of them, so kernels fuse only where they say Fma.
target_compile_options(quire_kernels PRIVATE -ffp-contract=off)
# Its own AVX-512 intrinsics start from `__Y = __Y`, which g++ 12 then warns about.
target_compile_options(quire_kernels PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized>)
# Sanitized, the unrolled tiles cost minutes of compiling. Nothing from outside steers a kernel, so coverage of them tells
# a fuzzer nothing; and what undefined behaviour there can be, the reference kernels show. Addresses are checked.
file(GLOB kernel_targets ${dir}/targets/*.cc)
if(QUIRE_SANITIZE MATCHES undefined)
  set_property(SOURCE ${kernel_targets} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=undefined)
endif()
if(QUIRE_FUZZ)
  target_compile_options(quire_kernels PRIVATE -fno-sanitize=fuzzer-no-link)
endif()
add_executable(kernels_digest ${dir}/digest_main.cc)
target_link_libraries(kernels_digest PRIVATE quire_kernels)
