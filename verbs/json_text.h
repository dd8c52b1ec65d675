// Changes to the text of a JSON document that leave everything else as somebody wrote it. Precondition of all: the text is valid JSON.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradledger::verbs {

// A value of the document: from its first character to the one after its last.
struct TextRange {
  std::size_t begin = 0, end = 0;
};

TextRange root_of(std::string_view text);

// The value of a key of an object; nothing where `object` is none or has no such key.
std::optional<TextRange> member_of(std::string_view text, TextRange object, std::string_view key);

// Of an array, in order.
std::vector<TextRange> elements_of(std::string_view text, TextRange array);

// With a member more, last in the object and set off as the ones before it are.
std::string with_member(std::string_view text, TextRange object, std::string_view key, std::string_view value);

// With other elements in an array: set off as those that were there, or on one line where there were none.
std::string with_elements(std::string_view text, TextRange array, const std::vector<std::string>& elements);

}  // namespace gradledger::verbs
