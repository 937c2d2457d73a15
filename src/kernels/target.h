// Regions of code compiled for another CPU than the rest of the program. Everything between
// QUIRE_TARGET_BEGIN("…") and QUIRE_TARGET_END, templates and lambdas included, may use that CPU's
// instructions; nothing outside may. Standard headers are included before a region, never in it: their inline
// functions would be emitted with those instructions and the linker could hand them to code that runs
// everywhere.
#pragma once

#define QUIRE_PRAGMA(x) _Pragma(#x)
#if defined(__clang__)
#define QUIRE_TARGET_BEGIN(isa) QUIRE_PRAGMA(clang attribute push(__attribute__((target(isa))), apply_to = function))
#define QUIRE_TARGET_END QUIRE_PRAGMA(clang attribute pop)
#else
#define QUIRE_TARGET_BEGIN(isa) QUIRE_PRAGMA(GCC push_options) QUIRE_PRAGMA(GCC target(isa))
#define QUIRE_TARGET_END QUIRE_PRAGMA(GCC pop_options)
#endif

// Vocabulary functions are one or two instructions: they must vanish even in builds that hardly optimise.
#define QUIRE_INLINE [[gnu::always_inline]] inline
#define QUIRE_LAMBDA __attribute__((always_inline))
// Before a loop over the rows or panels of a register tile, whose bounds are template parameters. Sanitizers put a check
// around every access and every address, and unrolled tiles of a few hundred accesses then take minutes to compile:
// their builds keep the loops.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define QUIRE_UNROLL QUIRE_PRAGMA(clang loop unroll(disable))
#endif
#endif
#ifndef QUIRE_UNROLL
#define QUIRE_UNROLL QUIRE_PRAGMA(GCC unroll 32)
#endif
