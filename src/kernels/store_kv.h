// Writes keys and values into the blocks of the KV pool. Scalar and the same bytes on every tier: a store
// costs a thousandth of the projection that made the values.
#pragma once

#include "kernels/kernel_table.h"

namespace quire::kernels {

void StoreKv(const StoreKvArgs& args);

}  // namespace quire::kernels
