#include "sim/frameworks/deepspeed/framework_history.h"

#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/history.h"
#include "sim/frameworks/deepspeed/repairs.h"

namespace gradledger::deepspeed {
namespace {

void append(std::string& to, std::string_view separator, const std::string& text) { to += (to.empty() ? "" : std::string(separator)) + text; }

// "offload_keep gate_ga (#7967)" for each switch that the change moved.
void append_moves(const ChangeInfo& change, std::string& to) {
  for (const SwitchInfo& s : switches())
    for (const SwitchInfo::Value& v : s.values)
      if (v.since == change.name) append(to, "; ", std::string(s.name) + " " + std::string(v.name) + " (" + std::string(change.name) + ")");
}

class DeepSpeedHistory final : public History {
 public:
  std::vector<std::string> points() const override {
    std::vector<std::string> out;
    for (const ReleaseInfo& r : releases()) out.emplace_back(r.first);
    if (!(*point_named(out.back(), "") == head())) out.emplace_back("head");
    return out;
  }

  std::optional<bool> contains_all_of(std::string_view as_of, std::string_view other) const override {
    const auto point = point_named(as_of, ""), contained = point_named(other, "");
    return point && contained ? std::optional(point->contains_all_of(*contained)) : std::nullopt;
  }

  std::optional<std::string> switch_value(const AsOf& as_of, std::string_view name) const override {
    const auto behaviour = resolve_behaviour(as_of);
    return behaviour ? std::optional(std::string(gradledger::switch_value(*behaviour, name))) : std::nullopt;
  }

  std::optional<std::string> behaviour_of(const AsOf& as_of) const override {
    const auto behaviour = resolve_behaviour(as_of);
    if (!behaviour) return std::nullopt;
    std::string out;
    for (const SwitchInfo& s : switches()) append(out, " ", std::string(s.name) + "=" + std::string(gradledger::switch_value(*behaviour, s.name)));
    return out;
  }

  // Behind the switches, whether each change is in it: what DeepSpeed documents moved with some.
  std::optional<std::vector<std::uint8_t>> values_of(const AsOf& as_of) const override {
    const auto behaviour = resolve_behaviour(as_of);
    const auto point = point_named(as_of.base, "");
    if (!behaviour || !point) return std::nullopt;
    std::vector<std::uint8_t> out = values_of_switches(*behaviour);
    for (const ChangeInfo& change : changes()) out.push_back(point->contains(change.change));
    return out;
  }

  std::span<const Repair> repairs() const override { return gradledger::repairs(); }

  std::vector<SwitchRow> switch_rows(std::string_view as_of) const override {
    const auto behaviour = resolve_behaviour(AsOf{std::string(as_of), {}});
    expects(behaviour.ok(), "the switches of a state of the code that is not known were asked for");
    std::vector<SwitchRow> out;
    for (const SwitchInfo& s : switches()) {
      std::string values;
      for (const SwitchInfo::Value& v : s.values) append(values, ", ", std::string(v.name) + " (" + std::string(v.since) + ")");
      out.push_back({std::string(s.name), values, std::string(gradledger::switch_value(*behaviour, s.name)), std::string(s.meaning)});
    }
    return out;
  }

  // The first run of releases stands for all changes up to it.
  std::vector<ReleaseRow> release_rows() const override {
    std::vector<ReleaseRow> out;
    std::size_t next = 0;
    for (const ReleaseInfo& r : releases()) {
      const std::size_t first = next;
      std::string adds, moves;
      for (; next <= static_cast<std::size_t>(r.newest); ++next) {
        if (!out.empty()) append(adds, ", ", std::string(changes()[next].name));
        append_moves(changes()[next], moves);
      }
      if (out.empty()) adds = std::string(changes()[first].name) + " to " + std::string(changes()[next - 1].name);
      out.push_back({std::string(r.first) + (r.first == r.last ? "" : " to " + std::string(r.last)), adds, moves.empty() ? "nothing" : moves});
    }
    return out;
  }

  std::vector<ChangeRow> change_rows() const override {
    std::vector<ChangeRow> out;
    for (const ChangeInfo& c : changes()) out.push_back({std::string(c.name), first_release(c.change), std::string(c.moved)});
    return out;
  }
};

}  // namespace

const History& history() {
  static const DeepSpeedHistory it;
  return it;
}

}  // namespace gradledger::deepspeed
