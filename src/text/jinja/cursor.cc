// Reading iterables.
#include "text/jinja/python_str.h"
#include "text/jinja/value.h"

namespace quire::text::jinja {

Result<Cursor> Cursor::Over(const Value& iterable) {
  switch (iterable.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange:
    case Kind::kIterator:
      return Cursor(iterable);
    case Kind::kMissing:
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      break;
  }
  return RenderError("'{}' object is not iterable", iterable.type_name());
}

namespace {
Value ViewItem(const DictViewObject& view, const std::pair<Value, Value>& entry) {
  if (view.part == DictViewObject::kKeys) return entry.first;
  if (view.part == DictViewObject::kValues) return entry.second;
  return Value::Tuple({entry.first, entry.second});
}
}  // namespace

Result<std::optional<Value>> Cursor::Next() {
  const auto at = [&](const auto& items) -> std::optional<Value> {
    if (position_ >= items.size()) return std::nullopt;
    return items[position_++];
  };
  switch (source_.kind()) {
    case Kind::kList:
    case Kind::kTuple:
      return at(source_.items());
    case Kind::kString: {
      const std::string_view rest = std::string_view(source_.text()).substr(position_);
      if (rest.empty()) return std::nullopt;
      const std::size_t size = ByteOffset(rest, 1);
      position_ += size;
      return Value::String(std::string(rest.substr(0, size)));
    }
    case Kind::kDict: {
      const auto& entries = source_.dict().entries;
      if (position_ >= entries.size()) return std::nullopt;
      return entries[position_++].first;
    }
    case Kind::kDictView: {
      const auto& entries = source_.view().dict.dict().entries;
      if (position_ >= entries.size()) return std::nullopt;
      return ViewItem(source_.view(), entries[position_++]);
    }
    case Kind::kRange:
      if (static_cast<Int>(position_) >= source_.range().size) return std::nullopt;
      return source_.range().at(static_cast<Int>(position_++));
    case Kind::kIterator:
      return source_.iterator().next();
    case Kind::kUndefined:
    case Kind::kMissing:
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace quire::text::jinja
