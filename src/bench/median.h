// The middle of repeated measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace quire::bench {

// Of an even number the upper one of the two in the middle: a value that was measured. 0 of none.
inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace quire::bench
