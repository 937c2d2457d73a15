// Length, truth, equality and order of values.
#include <algorithm>

#include "text/jinja/python_str.h"
#include "text/jinja/value.h"

namespace quire::text::jinja {

std::optional<Int> LengthOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<Int>(CharacterCount(value.text()));
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<Int>(value.items().size());
    case Kind::kDict:
      return static_cast<Int>(value.dict().entries.size());
    case Kind::kDictView:
      return static_cast<Int>(value.view().dict.dict().entries.size());
    case Kind::kRange:
      return value.range().size;
    case Kind::kMissing:
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      return std::nullopt;
  }
  return std::nullopt;
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.real() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    case Kind::kDictView:
      return !value.view().dict.dict().entries.empty();
    case Kind::kRange:
      return value.range().size > 0;
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      return true;
  }
  return false;
}

bool Same(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.object() || b.object()) {
    if (a.object() == b.object()) return true;
    return a.is_string() && a.text() == b.text() && a.text().size() <= 1;  // Python keeps one of each of these
  }
  return Equal(a, b, nullptr);
}

namespace {

bool EqualNumbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  return a.real() == b.real();
}

bool EqualDicts(const DictObject& a, const DictObject& b, Budget* budget) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::ranges::all_of(a.entries, [&](const auto& entry) {
    const Value* other = b.Find(entry.first);
    return other && Equal(entry.second, *other, budget);
  });
}

}  // namespace

bool Equal(const Value& a, const Value& b, Budget* budget) {
  if (budget && !budget->SpendSteps(1)) return false;
  if (a.is_number() && b.is_number()) return EqualNumbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return a.items().size() == b.items().size() &&
             std::ranges::equal(a.items(), b.items(), [&](auto& x, auto& y) { return Equal(x, y, budget); });
    case Kind::kDict:
      return EqualDicts(a.dict(), b.dict(), budget);
    case Kind::kRange: {
      const RangeObject &x = a.range(), &y = b.range();
      return x.size == y.size && (x.size == 0 || (x.start == y.start && (x.size == 1 || x.step == y.step)));
    }
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kDictView:
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      return a.object() == b.object();
  }
  return false;
}

Result<int> Compare(const Value& a, const Value& b, std::string_view operation, Budget* budget) {
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (!budget->SpendSteps(1)) return 0;
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  if (a.is_integral() && b.is_integral()) return order(a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return order(a.real(), b.real());
  if (a.is_string() && b.is_string()) return order(a.text(), b.text());  // UTF-8 sorts as its characters do
  if (a.is_sequence() && a.kind() == b.kind()) {
    const auto &x = a.items(), &y = b.items();
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (Equal(x[i], y[i], budget)) continue;
      return Compare(x[i], y[i], operation, budget);
    }
    return order(x.size(), y.size());
  }
  return RenderError("'{}' not supported between instances of '{}' and '{}'", operation, a.type_name(), b.type_name());
}

std::unexpected<Error> UndefinedError(const Value& undefined) {
  return RenderError("{}", undefined.undefined().Message());
}

}  // namespace quire::text::jinja
