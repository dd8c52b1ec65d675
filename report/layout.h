// Lines of at most a width, for people who read in a terminal. Widths count characters of UTF-8; colours are put on behind the count.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gradledger::report {

constexpr std::size_t any_width = 0;  // lines are as long as they come: whoever reads a pipe searches in whole sentences

// Columns that a text takes. Precondition: no escape sequences in it.
std::size_t columns_of(std::string_view text);

// `text`, broken at spaces; lines behind the first begin with `indent` spaces. A word that is wider than a line stays whole, so that a path
// or a command can be copied. Line feeds of the text stay.
std::string wrapped(std::string_view text, std::size_t width, std::size_t indent);

// Parts that follow one another, "a; b; c", each whole on a line as long as one can hold it.
class Flow {
 public:
  // `used`: columns that stand in the first line already. Lines behind the first begin with `indent` spaces.
  Flow(std::size_t width, std::size_t used, std::size_t indent) : width_(width), column_(used), indent_(indent) {}

  // `shown` is `plain` with colours.
  void add(std::string_view plain, std::string_view shown);
  const std::string& text() const { return text_; }

 private:
  std::size_t width_, column_, indent_;
  std::string text_;
};

}  // namespace gradledger::report
