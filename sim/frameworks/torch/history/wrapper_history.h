// The history of one of PyTorch's wrappers: what decided gradients in another way in an earlier release, and what that release did not have yet.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/result.h"
#include "sim/frameworks/history.h"
#include "sim/scenario/scenario.h"

namespace gradledger::torch {

struct SwitchValue {
  std::string_view name;
  std::string_view since{};  // the first release of a line of release_lines(); empty: older than all of them
};

struct Switch {
  std::string_view name, meaning;
  std::vector<SwitchValue> values;  // oldest first
};

// An option or a method that earlier releases do not have.
struct Addition {
  std::string_view name, since;
};

struct Wrapper {
  std::string_view framework;  // id
  std::string_view title;      // as its users call it: "fully_shard"
  std::vector<Switch> switches;
  std::vector<Addition> additions;
  std::vector<Repair> repair_table;
};

class WrapperHistory final : public History {
 public:
  explicit WrapperHistory(Wrapper wrapper) : wrapper_(std::move(wrapper)) {}

  // By switch, the place of its value. Errors: an unknown release, switch or value.
  Result<std::vector<std::uint8_t>> resolve(const AsOf& as_of) const;
  // What is wrong with a state of the code that somebody asks for.
  std::optional<InputError> problem(const AsOf& as_of) const;
  // Whether a release has an option or method. Errors: it has not. Precondition: as_of is known.
  std::optional<InputError> missing(const AsOf& as_of, std::string_view name, const std::string& where) const;
  // Likewise of all that a script calls: the framework's own events in `items`, whose pointer is `where`.
  std::optional<InputError> missing_calls(const AsOf& as_of, const std::vector<ScriptItem>& items, const std::string& where) const;

  std::vector<std::string> points() const override;
  std::optional<bool> contains_all_of(std::string_view as_of, std::string_view other) const override;
  std::optional<std::string> switch_value(const AsOf& as_of, std::string_view name) const override;
  std::optional<std::string> behaviour_of(const AsOf& as_of) const override;
  // Switches, then whether each addition is there.
  std::optional<std::vector<std::uint8_t>> values_of(const AsOf& as_of) const override;
  std::span<const Repair> repairs() const override { return wrapper_.repair_table; }
  std::vector<SwitchRow> switch_rows(std::string_view as_of) const override;
  std::vector<ReleaseRow> release_rows() const override;
  std::vector<ChangeRow> change_rows() const override;

 private:
  struct Step {
    std::string adds, moves;
    bool empty() const { return adds.empty() && moves.empty(); }
  };
  Step step_of(std::string_view release) const;
  bool has(const Addition& addition, const AsOf& as_of) const;

  Wrapper wrapper_;
};

}  // namespace gradledger::torch
