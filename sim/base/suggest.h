// What somebody meant who wrote a word that there is not.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gradledger {

// "; did you mean \"gradient\"?" for the word that is fewest edits away (a letter more, less, another, or two swapped), where that is at most a
// third of its length; "" where none is. Of several as near, the first.
std::string did_you_mean(std::string_view given, std::span<const std::string> known);

}  // namespace gradledger
