// What a misspelt word was probably meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradledger {

// The known word that is nearest to `word`, the first of equals, where few enough edits lie between them; otherwise nothing. An edit
// inserts, deletes or replaces a character, or swaps two neighbours; upper and lower case are the same.
std::string closest_of(std::string_view word, const std::vector<std::string>& known);

// "; did you mean \"x\"?", or nothing.
std::string suggestion(std::string_view word, const std::vector<std::string>& known);

// "a, b or c"; of nothing "none".
std::string in_words(const std::vector<std::string>& known);

}  // namespace gradledger
