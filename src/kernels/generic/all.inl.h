// Everything that is written once, in the order in which it builds on itself.
// clang-format off
#include "kernels/generic/math.inl.h"
#include "kernels/generic/activations.inl.h"
#include "kernels/generic/prefetch.inl.h"
#include "kernels/generic/tile_io.inl.h"
#include "kernels/generic/integer_codes.inl.h"
#include "kernels/generic/gemm_int8.inl.h"
#include "kernels/generic/gemm_float.inl.h"
#include "kernels/generic/gemm_scaled.inl.h"
#include "kernels/generic/gemm.inl.h"
#include "kernels/generic/kv_cache.inl.h"
#include "kernels/generic/attention.inl.h"
#include "kernels/generic/elementwise.inl.h"
#include "kernels/generic/table.inl.h"
// clang-format on
