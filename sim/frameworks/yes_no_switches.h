// Releases by their numbers, and switches that are on or off, as frameworks have them whose history is a table of flags.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

using ReleaseNumber = std::array<unsigned, 3>;

// "0.16.1", without what is left of it behind three numbers. Nothing where it is no release.
std::optional<ReleaseNumber> release_number(std::string_view text);

// Of a release that is newer than what is modelled: how it is taken.
std::optional<std::string> note_of_newer_release(std::string_view as_of, std::string_view newest);

// The number of "as_of"; nothing for head. Errors: no release, one before the oldest. title: as users call the framework.
Result<std::optional<ReleaseNumber>> asked_release(const AsOf& as_of, std::string_view oldest, std::string_view title);

// Each where the history has its value.
template <class Behaviour, class Info>
void place(std::span<const Info> switches, Behaviour& out) {
  for (std::size_t i = 0; i < switches.size(); ++i) (out.*switches[i].member).place_at(i);
}

// What a scenario sets by hand. Info: a switch with a name and a member of Behaviour. Errors: an unknown switch, a value that is neither "yes" nor "no".
template <class Behaviour, class Info>
std::optional<InputError> set_by_hand(const AsOf& as_of, std::span<const Info> switches, std::string_view title, Behaviour& out) {
  for (const auto& [name, value] : as_of.switches) {
    const std::string where = "/engine/as_of/" + name;
    const Info* found = nullptr;
    for (const Info& info : switches)
      if (info.name == name) found = &info;
    if (!found) {
      std::string names;
      for (const Info& info : switches) names += (names.empty() ? "" : ", ") + std::string(info.name);
      return InputError{where, "is no switch of " + std::string(title) + "; expected one of " + names};
    }
    if (value != "yes" && value != "no") return InputError{where, "is \"" + value + "\"; expected \"yes\" or \"no\""};
    out.*found->member = value == "yes";
  }
  return std::nullopt;
}

}  // namespace gradledger
