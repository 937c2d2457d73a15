// What one rendering may cost. A template is a program from outside: every evaluated node, every item that a filter
// touches and every byte that is built is paid for here, and when nothing is left the rendering ends with an error.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::text::jinja {

struct Limits {
  // Evaluated nodes and touched items. A conversation of a thousand turns needs well under a million; twenty million
  // take about a second.
  std::int64_t steps_max = 20'000'000;
  // Bytes of all strings and lists built during the rendering, whether they still live or not.
  std::int64_t bytes_max = std::int64_t{512} << 20;
  // Of one string or list.
  std::int64_t value_bytes_max = std::int64_t{64} << 20;
  std::size_t output_bytes_max = std::size_t{64} << 20;
  std::int64_t range_items_max = 100'000;  // as jinja2's sandbox
  // Nested evaluations (a macro call costs about ten): bounds the C++ stack, which is some 1 KB for each.
  int depth_max = 1200;
  // Nesting of lists, dicts and lazy sequences, so that no recursion over data is deeper.
  int value_height_max = 200;
};

class Budget {
 public:
  explicit Budget(const Limits& limits) : steps_(limits.steps_max), bytes_(limits.bytes_max) {}

  // Work that loops over data calls these and stops early on false; the evaluator turns exhaustion into the error.
  bool SpendSteps(std::size_t steps) {
    steps_ -= static_cast<std::int64_t>(steps);
    return !exhausted();
  }
  bool SpendBytes(std::size_t bytes) {
    bytes_ -= static_cast<std::int64_t>(bytes);
    return !exhausted();
  }
  // Whether `bytes` more could be paid: asked before something large is built.
  bool CanAfford(std::size_t bytes) const { return bytes_ >= 0 && bytes <= static_cast<std::size_t>(bytes_); }
  bool exhausted() const { return steps_ < 0 || bytes_ < 0; }

 private:
  std::int64_t steps_;
  std::int64_t bytes_;
};

}  // namespace quire::text::jinja
