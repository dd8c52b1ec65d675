#include "sim/scenario/syntax_cause.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace gradledger {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

// The word around `at`: parsers stop somewhere within one.
std::string_view word_at(std::string_view text, std::size_t at) {
  std::size_t begin = std::min(at, text.size() - 1), end = begin;
  while (begin > 0 && is_letter(text[begin - 1])) --begin;
  while (end < text.size() && is_letter(text[end])) ++end;
  return text.substr(begin, end - begin);
}

// What stands before the string that ends at `at`: a parser that does not want it has read all of it.
char before_string(std::string_view text, std::size_t at) {
  std::size_t begin = at == 0 ? std::string_view::npos : text.rfind('"', at - 1);
  if (begin == std::string_view::npos) return '\0';
  while (begin > 0 && is_space(text[begin - 1])) --begin;
  return begin == 0 ? '\0' : text[begin - 1];
}

bool ends_value(char c) { return c == '"' || c == '}' || c == ']' || is_letter(c) || std::isdigit(static_cast<unsigned char>(c)) != 0; }

struct Word {
  std::string_view written, cause;
};
constexpr std::array words{
    Word{"NaN", "; NaN is no JSON number: non-finite values are strings, \"nan\""},
    Word{"Infinity", "; Infinity is no JSON number: non-finite values are strings, \"inf\""},
    Word{"inf", "; inf is no JSON number: non-finite values are strings, \"inf\""},
    Word{"nan", "; nan is no JSON number: non-finite values are strings, \"nan\""},
    Word{"True", "; JSON writes true with a small letter"},
    Word{"False", "; JSON writes false with a small letter"},
    Word{"None", "; JSON writes null for None"},
};

}  // namespace

std::string syntax_cause(std::string_view text, std::size_t byte) {
  if (text.empty()) return "; the file is empty";
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3), byte -= std::min<std::size_t>(byte, 3);
  if (text.empty() || byte > text.size()) return "; the text ends before its last bracket is closed";
  const std::size_t at = byte == 0 ? 0 : byte - 1;
  const char here = text[at];
  std::size_t before = at;
  while (before > 0 && is_space(text[before - 1])) --before;
  const char last = before > 0 ? text[before - 1] : '\0';
  if ((here == '}' || here == ']') && last == ',') return "; a comma stands before the closing bracket";
  if (here == '/' || here == '#' || (last == '/' && (here == '/' || here == '*'))) return "; JSON has no comments";
  if (here == '\'') return "; strings stand in double quotes";
  for (const Word& word : words)
    if (word_at(text, at) == word.written) return std::string(word.cause);
  if (here == '"' && ends_value(before_string(text, at))) return "; a comma is missing before this";
  if (is_letter(here) && (last == '{' || last == ',')) return "; names stand in double quotes";
  return "";
}

}  // namespace gradledger
