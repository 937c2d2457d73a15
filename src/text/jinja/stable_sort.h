// A merge sort that is safe with any comparison: one that contradicts itself (NaN, an error half-way) only gives some
// order, where std::sort would run out of its range.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace quire::text::jinja {

template <typename T, typename Less>
void StableSort(std::vector<T>* items, Less less) {
  std::vector<T> merged(items->size());
  const std::size_t size = items->size();
  for (std::size_t width = 1; width < size; width *= 2) {
    for (std::size_t begin = 0; begin < size; begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, size), end = std::min(begin + 2 * width, size);
      std::size_t left = begin, right = middle;
      for (std::size_t out = begin; out < end; ++out) {
        const bool take_right = left == middle || (right < end && less((*items)[right], (*items)[left]));
        merged[out] = std::move((*items)[take_right ? right++ : left++]);
      }
    }
    items->swap(merged);
  }
}

}  // namespace quire::text::jinja
