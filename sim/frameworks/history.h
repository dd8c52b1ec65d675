// The history of a framework as searches and lists see it: states of its code by name, switches of behaviour, and which of them repair a
// known defect. A framework of which one release is modelled has none.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/scenario/scenario.h"

namespace gradledger {

// One way in which an entry of the catalogue shows. The first that fits a finding names it. Since when and until when is not written down
// here; it follows from the history of the switch.
struct Repair {
  std::string_view entry;  // of the catalogue
  std::string_view name;   // of the switch
  std::string_view wrong;  // value that has the defect; "": any but the right one
  std::string_view right;
  std::string_view avoid{};                    // what a user of such a release can do; "" where nothing is known that a run has shown
  std::uint32_t stage_min = 0, stage_max = 3;  // Framework::stage()
};

class History {
 public:
  virtual ~History() = default;

  // Oldest first: the first release of each run of releases that behave alike, then "head" where it behaves in another way.
  virtual std::vector<std::string> points() const = 0;
  // Whether a state of the code contains every change that another contains; nothing where a text names no state.
  virtual std::optional<bool> contains_all_of(std::string_view as_of, std::string_view other) const = 0;
  // By name; nothing where the state of the code is not known.
  virtual std::optional<std::string> switch_value(const AsOf& as_of, std::string_view name) const = 0;
  // All that decides how gradients are treated: equal texts, equal behaviour. Nothing where the state of the code is not known.
  virtual std::optional<std::string> behaviour_of(const AsOf& as_of) const = 0;
  // The same as numbers, by SwitchPlace, with all else that a run may ask of a state of the code. Nothing where it is not known.
  virtual std::optional<std::vector<std::uint8_t>> values_of(const AsOf& as_of) const = 0;
  virtual std::span<const Repair> repairs() const = 0;

  // ---- for lists: `gradledger list behaviours`, `releases`, `changes`
  struct SwitchRow {
    std::string name, values, now, meaning;  // values: "kept (older), cleared (#7981)"
  };
  struct ReleaseRow {
    std::string releases, adds, moves;
  };
  struct ChangeRow {
    std::string change, first_release, what;
  };
  // Precondition: as_of is known.
  virtual std::vector<SwitchRow> switch_rows(std::string_view as_of) const = 0;
  virtual std::vector<ReleaseRow> release_rows() const = 0;
  virtual std::vector<ChangeRow> change_rows() const = 0;
};

}  // namespace gradledger
