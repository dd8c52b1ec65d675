// The history of a framework whose releases differ by switches that are on or off.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/frameworks/history.h"
#include "sim/frameworks/yes_no_switches.h"

namespace gradledger {

// A switch by its dates, whatever the framework keeps it in.
struct DatedSwitch {
  std::string_view name;
  std::string_view since, change;    // the first release that has it otherwise than those before, and what changed it there; "" where no release is known to
  std::string_view says;             // where it is true
  std::string_view until, ended_by;  // of what some releases had alone: the first one that has it no more, and what ended it
  bool at_head = false;
};

template <class Behaviour, class Info>
DatedSwitch dates_of(const Info& info) {
  return {info.name, info.since, info.change, info.says, info.until, info.ended_by, (Behaviour{}.*info.member).unnoted()};
}

// What a release has of it. Precondition: it is of releases, and `release` is one.
bool value_at(const DatedSwitch& of, const ReleaseNumber& release);

class YesNoHistory final : public History {
 public:
  struct Facts {
    std::vector<DatedSwitch> switches;
    std::vector<std::string_view> compared;  // releases, oldest first
    std::string_view prefix;                 // that a release may be named with besides: "core_v"
    std::span<const Repair> repairs;
    std::function<std::optional<std::vector<bool>>(const AsOf&)> values;  // of the switches, in their order; nothing where the state of the code is not known
  };
  explicit YesNoHistory(Facts facts) : facts_(std::move(facts)) {}

  std::vector<std::string> points() const override;
  std::optional<bool> contains_all_of(std::string_view as_of, std::string_view other) const override;
  std::optional<std::string> switch_value(const AsOf& as_of, std::string_view name) const override;
  std::optional<std::string> behaviour_of(const AsOf& as_of) const override;
  std::optional<std::vector<std::uint8_t>> values_of(const AsOf& as_of) const override;
  std::span<const Repair> repairs() const override { return facts_.repairs; }
  std::vector<SwitchRow> switch_rows(std::string_view as_of) const override;
  std::vector<ReleaseRow> release_rows() const override;
  std::vector<ChangeRow> change_rows() const override;

 private:
  // A switch that a release has otherwise than the one before it.
  struct Move {
    const DatedSwitch* of;
    std::string_view change;
    std::string value;
  };
  std::vector<Move> moves_of(std::string_view release) const;
  std::optional<ReleaseNumber> number_of(std::string_view text) const;

  Facts facts_;
};

// Of a framework that has its switches in a Behaviour.
template <class Behaviour, class Info>
YesNoHistory yes_no_history(std::span<const Info> switches, std::span<const std::string_view> compared, std::string_view prefix, std::span<const Repair> repairs,
                            Result<Behaviour> (*behaviour_of)(const AsOf&)) {
  YesNoHistory::Facts facts{{}, {compared.begin(), compared.end()}, prefix, repairs, [=](const AsOf& as_of) -> std::optional<std::vector<bool>> {
                              const auto behaviour = behaviour_of(as_of);
                              if (!behaviour) return std::nullopt;
                              std::vector<bool> out;
                              for (const Info& info : switches) out.push_back(((*behaviour).*info.member).unnoted());
                              return out;
                            }};
  for (const Info& info : switches) facts.switches.push_back(dates_of<Behaviour>(info));
  return YesNoHistory(std::move(facts));
}

}  // namespace gradledger
