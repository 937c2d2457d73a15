// Stands in for src/kernels/target.h: emulated instructions run everywhere, so there are no regions.
#pragma once

#define QUIRE_TARGET_BEGIN(isa)
#define QUIRE_TARGET_END
#define QUIRE_INLINE inline
#define QUIRE_LAMBDA
#define QUIRE_UNROLL
