// The history of DeepSpeed as far as its gradient lifecycles are concerned: the changes that moved a behaviour, in merge order, and
// the releases between them. `engine.as_of` names a point in it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sim/base/result.h"

namespace gradledger {

// In merge order. A point in history is the number of changes that it contains.
enum class Change : std::uint8_t {
  pr545, pr551, pr861, pr1039, pr1273, pr1264, pr2512, pr2566, pr2695, pr3166, pr3630, pr3790, pr4084, pr4957, pr4975, pr5150, pr5170,
  pr5268, pr5259, pr5328, pr5555, pr5606, pr5868, pr6485, pr6508, pr6550, pr6590, pr6546, pr6675, pr7171, pr7302, pr6976, pr6993, pr7418, pr7371,
  pr7509, pr7515, pr7534, pr7580, pr7636, pr7645, pr7660, pr7665, pr7700, pr7724, pr7780, pr7787, pr7789, pr7788, pr7805, pr7839, pr7898, pr7967,
  pr7965, pr7981, pr7985, pr7992, pr8056, pr8068, pr8035, pr8080, pr8154, pr8184, pr8203, pr8217, pr8207, pr8225, pr8232, pr8280, pr8245,
  in_0_19_8,
};

struct ChangeInfo {
  Change change;
  std::string_view name;   // "#7981"
  std::string_view moved;  // what it did, in a few words
};

struct ReleaseInfo {
  std::string_view first;  // the first release of a run of releases that behave alike
  std::string_view last;
  Change newest;           // it contains this change and all before it
};

std::span<const ChangeInfo> changes();
std::span<const ReleaseInfo> releases();

// The first release that contains a change: "before 0.16.0" where that is older than every release that is known, "none" where none does yet.
std::string first_release(Change change);

// A state of the code. Contains a prefix of changes().
struct PointInHistory {
  std::uint8_t changes_contained = 0;

  bool contains(Change change) const { return static_cast<std::uint8_t>(change) < changes_contained; }
  bool operator==(const PointInHistory&) const = default;
};

PointInHistory head();

// "0.18.9", "#7981" (right after it), "before #7981", "head". A release between two that are known is one of the line before it, and a
// newer one the newest. Errors name the releases and changes that are known.
Result<PointInHistory> point_named(std::string_view as_of, std::string_view where);

// What is to be said of a release that is not known and taken as one that is; none for every other text.
std::optional<std::string> point_note(std::string_view as_of);

}  // namespace gradledger
