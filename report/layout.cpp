#include "report/layout.h"

#include <algorithm>

namespace gradledger::report {
namespace {

std::string line_wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  std::string out;
  std::size_t column = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = text.find(' ', begin);
    if (end == begin) {  // spaces at the front, or several of them
      out += ' ';
      ++column, ++begin;
      continue;
    }
    if (end == std::string_view::npos) end = text.size();
    const std::string_view word = text.substr(begin, end - begin);
    if (column > indent && column + columns_of(word) > width) {
      out.erase(out.find_last_not_of(' ') + 1);
      out += '\n' + std::string(indent, ' ');
      column = indent;
    }
    out += word;
    column += columns_of(word);
    begin = end;
  }
  return out;
}

}  // namespace

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  if (width == any_width) return std::string(text);
  std::string out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    out += line_wrapped(text.substr(begin, end - begin), width, indent);
    if (end < text.size()) out += '\n';
    begin = end + 1;
  }
  return out;
}

void Flow::add(std::string_view plain, std::string_view shown) {
  const bool first = text_.empty();
  if (!first) text_ += ';', ++column_;
  const std::size_t columns = columns_of(plain);
  const bool breaks = width_ != any_width && !first && column_ + 1 + columns + 1 > width_;  // the last column is for the semicolon
  if (breaks) text_ += '\n' + std::string(indent_, ' '), column_ = indent_;
  else if (!first) text_ += ' ', ++column_;
  text_ += shown;
  column_ += columns;
}

}  // namespace gradledger::report
