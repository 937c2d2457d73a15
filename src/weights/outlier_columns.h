// Input columns whose weights would spoil the scales of their groups, found before a matrix is quantised: they are kept
// apart in BF16, and the others get scales of their own size. LLM.int8() (Dettmers et al., 2022) does so for the few
// inputs whose activations are large, OWQ (Lee et al., 2023) for the columns whose error would weigh most. Activations
// are not known while a model is loaded, so this looks at weights only:
//
// The error of a group of 32 weights grows with the square of the largest of them, which the group's scale serves. Let
// D(t) be the sum of these squares over the outputs, each relative to its own row, times the weights that are left, when
// the t columns with the most energy are taken out of the group. Codes one bit longer would divide the error by four,
// so what t columns bring is worth ½ · log2(D(0) / D(t)) bits for each of 32 weights, and they cost 16 bits each. They
// are kept when they bring more than they cost and one column more, for the second product that they make necessary:
//
//   log2(D(0) / D(t)) > t + 1
//
// That is, one column must halve the group's RMS error (weights five times as large as the others' do), two must divide
// it by 2.8, three by 4. Columns that are alike give 1.06 for D(0) / D(1), and none is kept.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "weights/matrix_source.h"

namespace quire::weights {

// One in a hundred, rounded up, and no more than 64: a few hundredths of the memory and the time of the matrix.
std::int64_t OutlierColumnsMax(std::int64_t columns);

// Of matrices [rows, columns] of floats that meet the same inputs and will keep the same columns; ascending. Where there
// are too many, groups that gain most for a column come first. Looks at 256 rows of each matrix at most, evenly spread:
// a column that is worth an element for every output shows in those. Nothing for rows that groups of 32 do not divide.
Result<std::vector<std::int32_t>> FindOutlierColumns(std::span<const MatrixSource* const> matrices);

// The columns alone, [rows, kept.size()], as BF16. `floats` is in the order of the inputs, and so are the columns.
std::unique_ptr<MatrixSource> KeepColumns(std::unique_ptr<MatrixSource> floats, std::vector<std::int32_t> kept);

}  // namespace quire::weights
