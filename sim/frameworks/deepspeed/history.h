// The history of DeepSpeed as far as its gradient lifecycles are concerned: the changes that moved a behaviour, in merge order, and
// the releases between them. `engine.as_of` names a point in it.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sim/base/result.h"

namespace gradledger {

// In merge order, as history.def has them.
enum class Change : std::uint8_t {
#define CHANGE(number, moved) pr##number,
#define PACKAGE(id, release, moved) id,
#include "sim/frameworks/deepspeed/history.def"
};

inline constexpr std::size_t change_count = 0
#define CHANGE(number, moved) +1
#define PACKAGE(id, release, moved) +1
#include "sim/frameworks/deepspeed/history.def"
    ;

struct ChangeInfo {
  Change change;
  std::string_view name;   // "#7981"
  std::string_view moved;  // what it did, in a few words
};

struct ReleaseInfo {
  std::string_view first;  // the first release of a run of releases that behave alike
  std::string_view last;
  Change newest;                     // it contains this change and all before it
  std::span<const Change> picked{};  // and these, which a release branch took over alone
};

std::span<const ChangeInfo> changes();
std::span<const ReleaseInfo> releases();

// The first release that contains a change: "before 0.16.0" where that is older than every release that is known, "none" where none does yet.
std::string first_release(Change change);

// A state of the code: the changes that it contains. Most states are a change and all before it; a release branch may have others beside.
class PointInHistory {
 public:
  bool contains(Change change) const { return changes_[static_cast<std::size_t>(change)]; }
  bool contains_all_of(const PointInHistory& other) const { return (changes_ & other.changes_) == other.changes_; }
  PointInHistory with(Change change) const;
  PointInHistory without(Change change) const;
  bool operator==(const PointInHistory&) const = default;

 private:
  std::bitset<change_count> changes_;
};

PointInHistory head();
PointInHistory point_of(const ReleaseInfo& line);

// "0.18.9", "#7981" (right after it), "before #7981", "head"; behind each of these what a branch has beside it or lacks, "0.18.9+#7981" or
// "head-#8245". A release between two that are known is one of the line before it, and a newer one the newest. Errors name what is known.
Result<PointInHistory> point_named(std::string_view as_of, std::string_view where);

// What is to be said of a release that is not known and taken as one that is; none for every other text.
std::optional<std::string> point_note(std::string_view as_of);

}  // namespace gradledger
