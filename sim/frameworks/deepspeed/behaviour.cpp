#include "sim/frameworks/deepspeed/behaviour.h"

#include <functional>
#include <optional>

#include "sim/frameworks/deepspeed/settings.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/spelling.h"

namespace gradledger {
namespace {

// What brought a value: a change, nothing that is known (the oldest value), or nothing at all (a repair that no release has).
struct Since {
  constexpr Since() = default;
  constexpr Since(Change brought_it) : change(brought_it) {}
  static constexpr Since nothing() {
    Since out;
    out.hypothetical = true;
    return out;
  }

  std::optional<Change> change;
  bool hypothetical = false;
};

struct ValueRow {
  std::string_view name;
  Since since;
};

// Reads and writes one field of Behaviour as the index of its value.
struct SwitchRow {
  std::string_view name;
  std::string_view meaning;
  std::vector<ValueRow> values;  // in the order of the enumeration
  std::function<void(Behaviour&, std::uint8_t)> set;
  std::function<void(Behaviour&, std::size_t)> place;
  std::function<std::uint8_t(const Behaviour&)> get;

  // The value before every change: the first that some release has.
  std::uint8_t oldest() const {
    std::uint8_t value = 0;
    while (values[value].since.hypothetical) ++value;
    return value;
  }
};

template <class Enum>
SwitchRow row(std::string_view name, Watched<Enum> Behaviour::*field, std::string_view meaning, std::vector<ValueRow> values) {
  return {name,
          meaning,
          std::move(values),
          [field](Behaviour& b, std::uint8_t v) { b.*field = static_cast<Enum>(v); },
          [field](Behaviour& b, std::size_t place) { (b.*field).place_at(place); },
          [field](const Behaviour& b) { return static_cast<std::uint8_t>((b.*field).unnoted()); }};
}

const std::vector<SwitchRow>& rows() {
  using enum Change;
  static constexpr Since older, never = Since::nothing();
  static const std::vector<SwitchRow> table{
#define SWITCH(Type, field, meaning, ...) row(#field, &Behaviour::field, meaning, {__VA_ARGS__}),
#define VALUE(value, since) {#value, since},
#define NAMED(value, name, since) {name, since},
#include "sim/frameworks/deepspeed/switches.def"
  };
  return table;
}

std::string_view name_of(const Since& since) {
  if (since.hypothetical) return "never";
  return since.change ? changes()[static_cast<std::size_t>(*since.change)].name : "older";
}

Behaviour at(PointInHistory point) {
  Behaviour behaviour{};
  std::size_t place = 0;
  for (const SwitchRow& r : rows()) {
    r.place(behaviour, place++);
    std::uint8_t value = r.oldest();
    std::optional<Change> latest;
    for (std::uint8_t v = 0; v < r.values.size(); ++v) {
      const auto& since = r.values[v].since.change;
      if (since && point.contains(*since) && (!latest || *since > *latest)) {
        latest = since;
        value = v;
      }
    }
    r.set(behaviour, value);
  }
  return behaviour;
}

}  // namespace

const std::vector<SwitchInfo>& switches() {
  static const std::vector<SwitchInfo> infos = [] {
    std::vector<SwitchInfo> out;
    for (const SwitchRow& r : rows()) {
      SwitchInfo info{r.name, r.meaning, {}};
      for (std::uint8_t v = 0; v < r.values.size(); ++v) info.values.push_back({r.values[v].name, name_of(r.values[v].since)});
      out.push_back(std::move(info));
    }
    return out;
  }();
  return infos;
}

namespace {

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

Result<Behaviour> resolve(const AsOf& as_of) {
  const auto point = point_named(as_of.base, as_of.switches.empty() ? "/engine/as_of" : "/engine/as_of/base");
  if (!point) return point.error();
  Behaviour behaviour = at(*point);
  for (const auto& [name, value] : as_of.switches) {
    const std::string where = "/engine/as_of/" + pointer_token(name);
    const SwitchRow* found = nullptr;
    std::vector<std::string> names{"base"}, values;
    for (const SwitchRow& r : rows()) {
      if (r.name == name) found = &r;
      names.emplace_back(r.name);
    }
    if (!found) return InputError{where, "unknown switch \"" + name + "\"; expected one of " + listed(names) + suggestion(name, names)};
    std::optional<std::uint8_t> index;
    for (std::uint8_t v = 0; v < found->values.size(); ++v) {
      if (found->values[v].name == value) index = v;
      values.emplace_back(found->values[v].name);
    }
    if (!index) return InputError{where, "unknown value \"" + value + "\"; expected one of " + listed(values) + suggestion(value, values)};
    found->set(behaviour, *index);
  }
  return behaviour;
}

}  // namespace

// A campaign asks for the same state of the code again and again.
Result<Behaviour> resolve_behaviour(const AsOf& as_of) {
  thread_local std::optional<std::pair<AsOf, Result<Behaviour>>> latest;
  if (!latest || !(latest->first == as_of)) latest.emplace(as_of, resolve(as_of));
  return latest->second;
}

bool reduces_whole_buckets(const DeepSpeedConfig& config, const Behaviour& behaviour) {
  const bool contiguous = config.zero.contiguous_gradients || config.offloads_optimizer();
  return (config.zero.stage == 1 || config.zero.stage == 2) && contiguous && !config.zero.reduce_scatter && behaviour.stage12_bucket_payload == BucketPayload::whole_buffer;
}

bool pins_host_memory(const DeepSpeedConfig& config, const Behaviour& behaviour) {
  return config.zero.offload_pin_memory ? *config.zero.offload_pin_memory : behaviour.pin_memory_default == PinMemoryDefault::on;
}

std::string_view switch_value(const Behaviour& behaviour, std::string_view switch_name) {
  for (const SwitchRow& r : rows())
    if (r.name == switch_name) return r.values[r.get(behaviour)].name;
  expects(false, "a switch that does not exist");
  return {};
}

std::vector<std::uint8_t> values_of_switches(const Behaviour& behaviour) {
  std::vector<std::uint8_t> out;
  for (const SwitchRow& r : rows()) out.push_back(r.get(behaviour));
  return out;
}

}  // namespace gradledger
