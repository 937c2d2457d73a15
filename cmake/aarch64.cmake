# Toolchain file: programs for 64-bit ARM, compiled by clang with the C++ library of Debian's libstdc++-12-dev-arm64-cross,
# and run in qemu as a core that has the dot products of the tier `neon`.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER_TARGET aarch64-linux-gnu)
set(CMAKE_CXX_COMPILER_TARGET aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -cpu neoverse-n1)
