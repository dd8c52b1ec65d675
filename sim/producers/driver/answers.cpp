// Answers of ranks, checked: keys, types, names, sizes.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "sim/producers/driver/messages.h"

namespace gradledger::driver {
namespace {

using nlohmann::json;

constexpr std::size_t buffers_max = 1u << 16;  // of an answer
constexpr std::size_t pieces_max = 1u << 16;   // of a buffer
constexpr std::size_t text_max = 1u << 20;

template <class Value, std::size_t N>
std::optional<Value> named(const std::array<Value, N>& values, const json& name) {
  if (!name.is_string()) return std::nullopt;
  for (const Value value : values)
    if (name_of(value) == name.get_ref<const std::string&>()) return value;
  return std::nullopt;
}

constexpr std::array roles{Role::local_accumulator, Role::replicated_accumulator, Role::reduced_accumulator, Role::master_gradient, Role::applied_gradient,
                           Role::parameter,         Role::master_parameter,       Role::first_moment,        Role::second_moment,   Role::scratch};
constexpr std::array dtypes{Dtype::float32, Dtype::bfloat16, Dtype::float16, Dtype::float64};
constexpr std::array spaces{MemorySpace::device, MemorySpace::host};
constexpr std::array<std::pair<std::string_view, StepFact>, step_facts> facts_by_name{{{"skipped", StepFact::skipped},
                                                                                       {"updated", StepFact::updated},
                                                                                       {"loss_scale", StepFact::loss_scale},
                                                                                       {"gradient_norm", StepFact::gradient_norm},
                                                                                       {"clipping_norm", StepFact::clipping_norm},
                                                                                       {"loop_norm", StepFact::loop_norm}}};

bool counts(const json& value) { return value.is_number_integer() && (value.is_number_unsigned() || value.get<std::int64_t>() >= 0); }

std::optional<InputError> add_piece(const json& piece, const std::string& where, Dtype dtype, const Scenario& scenario, std::uint64_t& at, ShownBuffer& out) {
  if (!piece.is_array() || piece.size() != 3 || !piece[0].is_number_integer() || !counts(piece[1]) || !counts(piece[2])) return wrong(where, "expected [parameter, offset, numel]");
  const auto parameter = piece[0].get<std::int64_t>();
  const auto offset = piece[1].get<std::uint64_t>(), numel = piece[2].get<std::uint64_t>();
  if (parameter < -1 || parameter >= static_cast<std::int64_t>(scenario.parameters.size())) return wrong(where + "/0", fmt::format("is {}, which is no parameter", parameter));
  const std::uint64_t most = parameter < 0 ? out.data.size() : scenario.parameters[static_cast<std::size_t>(parameter)].numel;
  if (numel > most || offset > most - numel) return wrong(where, fmt::format("is [{}, {}) of {} elements", offset, offset + numel, most));
  const std::uint64_t bytes = numel * size_of(dtype);
  if (bytes > out.data.size() - at) return wrong(where, "lies past the end of the data");
  out.pieces.push_back({static_cast<std::int32_t>(parameter), static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(numel), dtype,
                        reinterpret_cast<const std::byte*>(out.data.data() + at)});
  at += bytes;
  return std::nullopt;
}

Result<ShownBuffer> buffer_from(json& entry, const std::string& where, const Scenario& scenario) {
  if (auto problem = keys_problem(entry, {"name", "role", "dtype", "pieces", "data"}, {"space", "at_end", "scale"})) return wrong(where + problem->where, problem->message);
  ShownBuffer out;
  if (!entry["name"].is_string() || entry["name"].get_ref<const std::string&>().size() > 1024) return wrong(where + "/name", "expected a text of at most 1024 characters");
  out.name = entry["name"];
  const auto role = named(roles, entry["role"]);
  if (!role) return wrong(where + "/role", "is no role: " + entry["role"].dump());
  const auto dtype = named(dtypes, entry["dtype"]);
  if (!dtype) return wrong(where + "/dtype", "expected fp32, bf16, fp16 or fp64");
  const auto space = named(spaces, entry.value("space", json("device")));
  if (!space) return wrong(where + "/space", "expected device or host");
  const json at_end = entry.value("at_end", json(true)), scale = entry.value("scale", json(1.0));
  if (!at_end.is_boolean()) return wrong(where + "/at_end", "expected true or false");
  if (!scale.is_number() || !(scale.get<double>() > 0) || !std::isfinite(scale.get<double>())) return wrong(where + "/scale", "expected a number above 0");
  if (!entry["data"].is_binary()) return wrong(where + "/data", "expected bytes");
  out.role = *role;
  out.space = *space;
  out.at_end = at_end;
  out.scale = scale;
  out.data = std::move(entry["data"].get_binary());
  if (!entry["pieces"].is_array() || entry["pieces"].size() > pieces_max) return wrong(where + "/pieces", fmt::format("expected at most {} pieces", pieces_max));
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < entry["pieces"].size(); ++i)
    if (auto problem = add_piece(entry["pieces"][i], fmt::format("{}/pieces/{}", where, i), *dtype, scenario, at, out)) return *problem;
  if (at != out.data.size()) return wrong(where + "/data", fmt::format("has {} bytes, and its pieces {}", out.data.size(), at));
  return out;
}

std::optional<InputError> add_facts(const json& facts, Done& out) {
  if (!facts.is_object()) return wrong("/facts", "expected a map");
  for (const auto& [name, value] : facts.items()) {
    const auto fact = std::find_if(facts_by_name.begin(), facts_by_name.end(), [&](const auto& known) { return known.first == name; });
    if (fact == facts_by_name.end()) return wrong("/facts/" + name, "is no fact of a step");
    if (!value.is_number() && !value.is_boolean()) return wrong("/facts/" + name, "expected a number");
    out.facts.emplace_back(fact->second, value.is_boolean() ? static_cast<double>(value.get<bool>()) : value.get<double>());
  }
  return std::nullopt;
}

bool all_texts(const json& list) {
  return list.is_array() && std::all_of(list.begin(), list.end(), [](const json& text) { return text.is_string(); });
}

}  // namespace

std::optional<InputError> keys_problem(const json& message, const std::vector<std::string_view>& needed, const std::vector<std::string_view>& possible) {
  if (!message.is_object()) return wrong("", "expected a map");
  for (const std::string_view key : needed)
    if (!message.contains(key)) return wrong("/" + std::string(key), "is missing");
  for (const auto& [key, value] : message.items())
    if (std::find(needed.begin(), needed.end(), key) == needed.end() && std::find(possible.begin(), possible.end(), key) == possible.end())
      return wrong("/" + key, "is no key of this message");
  return std::nullopt;
}

Result<RaisedError> error_from(const json& error, const std::string& where) {
  if (auto problem = keys_problem(error, {"type", "text"}, {"traceback"})) return wrong(where + problem->where, problem->message);
  RaisedError out;
  for (const auto& [key, into] : {std::pair{"type", &out.type}, {"text", &out.text}, {"traceback", &out.traceback}}) {
    const json value = error.value(key, json(""));
    if (!value.is_string() || value.get_ref<const std::string&>().size() > text_max) return wrong(where + "/" + key, "expected a text of at most 1 MiB");
    *into = value;
  }
  return out;
}

Result<Done> done_from(json&& message, const Scenario& scenario) {
  if (auto problem = keys_problem(message, {"type", "number"}, {"error", "buffers", "facts", "metrics"})) return *problem;
  Done out;
  if (!counts(message["number"])) return wrong("/number", "expected the number of the event");
  out.event = message["number"];
  if (message.contains("error") && !message["error"].is_null()) {
    auto error = error_from(message["error"], "/error");
    if (!error) return error.error();
    out.error = std::move(error).value();
  }
  if (message.contains("facts"))
    if (auto problem = add_facts(message["facts"], out)) return *problem;
  if (!message.contains("buffers")) return out;
  if (!message["buffers"].is_array() || message["buffers"].size() > buffers_max) return wrong("/buffers", fmt::format("expected at most {} buffers", buffers_max));
  for (std::size_t i = 0; i < message["buffers"].size(); ++i) {
    auto buffer = buffer_from(message["buffers"][i], "/buffers/" + std::to_string(i), scenario);
    if (!buffer) return buffer.error();
    out.buffers.push_back(std::move(buffer).value());
  }
  return out;
}

Result<DriverHello> hello_from(const json& message) {
  if (auto problem = keys_problem(message, {"type", "protocol", "kind", "process", "driver", "versions", "capabilities"}, {"rank", "world_size"})) return *problem;
  DriverHello out;
  if (!message["driver"].is_string()) return wrong("/driver", "expected a text");
  out.driver = message["driver"];
  if (!message["versions"].is_object()) return wrong("/versions", "expected a map of package to release");
  for (const auto& [package, version] : message["versions"].items()) {
    if (!version.is_string()) return wrong("/versions/" + package, "expected a text");
    out.versions[package] = version;
  }
  const json& can = message["capabilities"];
  if (auto problem =
          keys_problem(can, {"events", "frameworks"}, {"applied_gradients", "accumulators", "weights", "streams", "experts", "pipelines", "hooked_outputs", "sums_losses"}))
    return wrong("/capabilities" + problem->where, problem->message);
  for (const auto& [key, into] : {std::pair{"events", &out.events}, {"frameworks", &out.frameworks}}) {
    if (!all_texts(can[key])) return wrong(std::string("/capabilities/") + key, "expected a list of texts");
    for (const json& text : can[key]) into->insert(text.get<std::string>());
  }
  for (const auto& [key, into] : {std::pair{"applied_gradients", &out.applied_gradients},
                                  {"accumulators", &out.accumulators},
                                  {"weights", &out.weights},
                                  {"streams", &out.streams},
                                  {"experts", &out.experts},
                                  {"pipelines", &out.pipelines},
                                  {"hooked_outputs", &out.hooked_outputs},
                                  {"sums_losses", &out.sums_losses}}) {
    const json value = can.value(key, json(false));
    if (!value.is_boolean()) return wrong(std::string("/capabilities/") + key, "expected true or false");
    *into = value;
  }
  return out;
}

Observation observation_of(const ShownBuffer& buffer, std::uint32_t rank, std::uint32_t event) {
  return {rank, event, buffer.at_end, buffer.name, buffer.role, buffer.scale, buffer.pieces, buffer.space};
}

}  // namespace gradledger::driver
