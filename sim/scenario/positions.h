// Where in its text a value of a JSON document stands, by line and column.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/result.h"

namespace gradledger {

// From 1, in characters; line 0: not known.
struct Position {
  std::size_t line = 0, column = 0;

  bool known() const { return line > 0; }
  bool operator==(const Position&) const = default;
};

// Of a byte of a text, counted from 0.
Position position_at(std::string_view text, std::size_t byte);

// Where the values begin that JSON pointers name, one for each. Of a value that is not there, where the innermost one around it begins. Not
// known in a text that is no JSON up to there.
std::vector<Position> positions_of(std::string_view text, const std::vector<std::string>& pointers);

// A place in a file as errors name it: "a.json:3:5: /script/1". `where` is what an error of the document says: a JSON pointer, or "line 3,
// column 5" of a text that is no JSON, which needs no pointer.
std::string place_in(const std::filesystem::path& file, std::string_view text, const std::string& where);
// Likewise, of a file that is read for it; without line and column where it cannot be.
std::string place_in(const std::filesystem::path& file, const std::string& pointer);

// Errors of a document, each by its place in the file, as many of them as are told, and how many more there are.
std::vector<InputError> placed(std::vector<InputError> errors, const std::filesystem::path& file, std::string_view text);

// Errors of a document as they follow each other in its text.
std::vector<InputError> in_order(std::vector<InputError> errors, std::string_view text);

struct Place {
  std::string pointer;
  Position at;
};

// What place_in() put into an error of this file; nothing is known of another text.
Place place_from(const std::string& text, const std::filesystem::path& file);

}  // namespace gradledger
