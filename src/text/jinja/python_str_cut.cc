// The functions of python_str.h that cut texts and put them together.
#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/python_str.h"

namespace quire::text::jinja {

std::string_view Strip(std::string_view text, const std::optional<std::string_view>& set, bool left, bool right) {
  const auto strips = [&](std::string_view character) {
    return set ? set->find(character) != std::string_view::npos : IsSpaceCharacter(DecodeUtf8(character).code_point);
  };
  while (left && !text.empty()) {
    const std::size_t size = ByteOffset(text, 1);
    if (!strips(text.substr(0, size))) break;
    text.remove_prefix(size);
  }
  while (right && !text.empty()) {
    std::size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    if (!strips(text.substr(start))) break;
    text = text.substr(0, start);
  }
  return text;
}

std::vector<std::string_view> SplitSpace(std::string_view text, std::int64_t max_splits, bool from_right) {
  std::vector<std::string_view> parts;
  text = Strip(text, std::nullopt, !from_right, from_right);
  while (!text.empty()) {
    if (max_splits >= 0 && static_cast<std::int64_t>(parts.size()) == max_splits) {
      parts.push_back(text);  // what is left keeps the blanks at its far end
      break;
    }
    if (from_right) {
      std::size_t start = text.size();
      while (start > 0 && TrailingSpace(text.substr(0, start)) == 0) {
        do --start;
        while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80);
      }
      parts.push_back(text.substr(start));
      text = Strip(text.substr(0, start), std::nullopt, false, true);
    } else {
      std::size_t end = 0;
      while (end < text.size() && LeadingSpace(text.substr(end)) == 0) end += ByteOffset(text.substr(end), 1);
      parts.push_back(text.substr(0, end));
      text = Strip(text.substr(end), std::nullopt, true, false);
    }
  }
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator, std::int64_t max_splits,
                                      bool from_right) {
  std::vector<std::string_view> parts;
  while (max_splits < 0 || static_cast<std::int64_t>(parts.size()) < max_splits) {
    const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(from_right ? text.substr(at + separator.size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + separator.size());
  }
  parts.push_back(text);
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  const auto breaks_line = [](std::uint32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
  };
  std::vector<std::string_view> lines;
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char character = DecodeUtf8(text.substr(i));
    std::size_t end = i + character.size;
    if (breaks_line(character.code_point)) {
      if (character.code_point == '\r' && end < text.size() && text[end] == '\n') ++end;
      lines.push_back(text.substr(start, (keep_ends ? end : i) - start));
      start = end;
    }
    i = end;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string Replace(std::string_view text, std::string_view from, std::string_view to, std::int64_t count) {
  std::string out;
  if (from.empty()) {  // between all characters, and at both ends
    std::int64_t done = 0;
    for (const std::string_view character : Characters(text)) {
      if (count < 0 || done++ < count) out.append(to);
      out.append(character);
    }
    if (count < 0 || done < count) out.append(to);
    return out;
  }
  for (; count != 0; --count) {
    const std::size_t at = text.find(from);
    if (at == std::string_view::npos) break;
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return out.append(text);
}

std::size_t CountOccurrences(std::string_view text, std::string_view part) {
  if (part.empty()) return CharacterCount(text) + 1;
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) ++count;
  return count;
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out.append("&amp;");
        break;
      case '<':
        out.append("&lt;");
        break;
      case '>':
        out.append("&gt;");
        break;
      case '"':
        out.append("&#34;");
        break;
      case '\'':
        out.append("&#39;");
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace quire::text::jinja
