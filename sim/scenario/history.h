// The history of DeepSpeed as far as its gradient lifecycles are concerned: the changes that moved a behaviour, in merge order, and
// the releases between them. `engine.as_of` names a point in it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sim/base/result.h"

namespace gradledger {

// In merge order. A point in history is the number of changes that it contains.
enum class Change : std::uint8_t {
  pr6550, pr7509, pr7515, pr7665, pr7780, pr7788, pr7839, pr7967, pr7981, pr7985, pr7992, pr8035, pr8068, pr8184, sum_op,
};

struct ChangeInfo {
  Change change;
  std::string_view name;   // "#7981"
  std::string_view moved;  // what it did, in a few words
};

struct ReleaseInfo {
  std::string_view first;  // the first release of a run of releases that behave alike
  std::string_view last;
  std::uint8_t changes;    // contained, counted from the oldest
};

std::span<const ChangeInfo> changes();
std::span<const ReleaseInfo> releases();

// A state of the code. Contains a prefix of changes().
struct PointInHistory {
  std::uint8_t changes_contained = 0;

  bool contains(Change change) const { return static_cast<std::uint8_t>(change) < changes_contained; }
  bool operator==(const PointInHistory&) const = default;
};

PointInHistory head();

// "0.18.9", "#7981" (right after it), "before #7981", "head". Errors name the releases and changes that are known.
Result<PointInHistory> point_named(std::string_view as_of, std::string_view where);

}  // namespace gradledger
