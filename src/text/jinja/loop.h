// The `loop` variable of a for, which also reads the sequence: one item ahead when it is asked for the next one.
#pragma once

#include <optional>
#include <utility>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace quire::text::jinja {

struct Frame;

struct LoopObject final : Object, std::enable_shared_from_this<LoopObject> {
  LoopObject(Value i, Cursor c) : iterable(std::move(i)), cursor(std::move(c)) { height = iterable.height() + 1; }

  Value iterable;
  Cursor cursor;
  Int index0 = -1;
  std::optional<Int> length;
  std::optional<Value> previous, current, after;  // `after`: read ahead
  bool peeked = false;                            // `after` holds the next item, or the end when it has none
  std::optional<Value> last_changed;              // for loop.changed()
  // A recursive loop can be called again, from where its function was entered.
  const ForStatement* recursive = nullptr;
  Frame* outer = nullptr;
  int depth0 = 0;

  // Moves to the next item; false at the end.
  Result<bool> Advance();
  Result<const std::optional<Value>*> Peek();
  // Reads a lazy sequence to its end to learn its length.
  Result<Int> Length();
};

// loop.index and so on; a missing value for names that a loop does not have.
Result<Value> LoopAttribute(const Value& loop, const std::string& name);

}  // namespace quire::text::jinja
