#include "conformance/recording.h"

#include <algorithm>

#include "sim/frameworks/deepspeed/settings.h"
#include "sim/scenario/json_reader.h"
#include "sim/frameworks/deepspeed/config_json.h"
#include "sim/scenario/optimizer_json.h"
#include "sim/scenario/parse.h"
#include "sim/scenario/timeline.h"
#include "conformance/files.h"
#include "conformance/script.h"

namespace gradledger::conform {
namespace {

using nlohmann::json;

struct Inexpressible {
  std::string why;
};

// Recorders label the state of the code: "pre7981" and "post7981" are before and right after a change, "head" is the newest commit by the time
// of the recordings, and not the newest state that is known here. Anything else is the name of a release or change as scenarios write it.
std::string as_of_label(const std::string& label) {
  if (label == "head") return "#8280";
  for (const auto& [prefix, point] : {std::pair{"pre", "before #"}, std::pair{"post", "#"}}) {
    const std::string number = label.starts_with(prefix) ? label.substr(std::string(prefix).size()) : "";
    if (!number.empty() && number.find_first_not_of("0123456789") == std::string::npos) return point + number;
  }
  return label;
}

// PyTorch's CPU build raises this where it zeroes a host tensor in pinned memory, and a run on a GPU does not: judged up to there.
constexpr const char* error_of_the_environment = "RuntimeError: unknown parameter type";

// Whether the environment was mended so that it does in this what a GPU does: the patch names it.
bool is_mended(const RecordedRun& run, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return run.patch.find(name) != std::string::npos; });
}

// Whether some operation before a step reduces more than a flag or a norm.
bool reduces_gradients(const RecordedRun& run) {
  const auto reduces = [](const RecordedCollective& call) { return call.numel > 1 && (call.kind.starts_with("reduce") || call.kind.starts_with("all_reduce")); };
  for (const auto& moments : run.ranks)
    for (const RecordedMoment& moment : moments)
      if (moment.operation != "step" && moment.collectives && std::any_of(moment.collectives->begin(), moment.collectives->end(), reduces)) return true;
  return false;
}

// What recordings on CPUs show and runs on a GPU do not, unless the environment was mended.
void set_what_cpus_do(const RecordedRun& run, Scenario& scenario) {
  const DeepSpeedConfig& config = deepspeed_config(scenario);
  if (config.zero.stage != 1 && config.zero.stage != 2) return;
  // Tensors are told by the name of a type that a CPU does not have, and nothing is reduced: where something is, it was told otherwise.
  const bool separates = is_mended(run, {"split_half_float_double", "FloatTensor", "tensor type", "contiguous_gradients"}) || reduces_gradients(run);
  if (!config.zero.contiguous_gradients && !config.offloads_optimizer() && !separates) scenario.engine.as_of.switches["separate_buckets"] = "dropped";
  // A CPU has one stream: nothing is freed while a reduction still reads it.
  if (config.zero.overlap_comm.value_or(false) && !is_mended(run, {"stream"})) scenario.engine.as_of.switches["overlap_lifetime"] = "after_reduction";
}

void set_engine(const RecordedRun& run, Scenario& scenario) {
  const std::string as_of = as_of_label(run.version);
  const auto point = point_named(as_of, "");
  if (!point) throw Inexpressible{"version \"" + run.version + "\" is not known"};
  scenario.engine.as_of.base = as_of;
  auto config = parse_deepspeed_config(run.config, run.world, "");
  if (!config) throw Inexpressible{"configuration: " + config.error().text()};
  deepspeed_config(scenario) = std::move(config).value();
  scenario.model_dtype = deepspeed_config(scenario).bf16.enabled ? Dtype::bfloat16 : deepspeed_config(scenario).fp16.enabled ? Dtype::float16 : Dtype::float32;
  if (!run.optimizer.is_null()) {
    auto optimizer = optimizer_from_json(run.optimizer, "");
    if (!optimizer) throw Inexpressible{"optimizer: " + optimizer.error().text()};
    scenario.engine.optimizer = *optimizer;
  }
  set_what_cpus_do(run, scenario);
}

void end_at_error_of_the_environment(const RecordedRun& run, Recording& recording) {
  if (is_mended(run, {"unknown parameter type", "zero_grad"})) return;
  for (std::vector<RecordedMoment>& moments : recording.ranks) {
    const auto at = std::find_if(moments.begin(), moments.end(), [](const RecordedMoment& m) { return m.error.starts_with(error_of_the_environment); });
    if (at == moments.end()) continue;
    recording.left_out = "operations from " + std::to_string(at - moments.begin()) + " on, where the recording's CPU environment raises what a GPU does not";
    moments.erase(at, moments.end());
  }
}

// Samples that a rank takes at a time, where the configuration says so in numbers; 1 where it says nothing.
std::uint32_t micro_batch_size(const RecordedRun& run, const Scenario& scenario) {
  const auto given = [&](const char* key) {
    const auto at = run.config.find(key);
    const bool counts = at != run.config.end() && at->is_number_integer() && at->get<std::int64_t>() >= 1 && at->get<std::int64_t>() <= std::int64_t{1} << 30;
    return counts ? at->get<std::uint32_t>() : 0;
  };
  if (const std::uint32_t size = given("train_micro_batch_size_per_gpu")) return size;
  return std::max(1u, given("train_batch_size") / (run.world * deepspeed_config(scenario).gradient_accumulation_steps));
}

Recording make_recording(const RecordedRun& run) {
  Recording out;
  out.name = run.name;
  out.version = run.version;
  Scenario& scenario = out.scenario;
  scenario.name = run.name;
  scenario.world_size = run.world;
  for (std::size_t p = 0; p < run.sizes.size(); ++p) scenario.parameters.push_back({"param" + std::to_string(p), run.sizes[p], std::nullopt});
  set_engine(run, scenario);
  if (!run.unfinished.empty()) throw Inexpressible{"the run is unfinished: " + run.unfinished};
  auto values = std::make_shared<GivenValues>(run.gradients);
  Script script = make_script(Field(run.operations, "operations"), micro_batch_size(run, scenario), scenario, *values);
  if (!run.refusal.empty()) {
    out.refusal = run.refusal;
    return out;
  }
  if (script.inexpressible) throw Inexpressible{*script.inexpressible};
  scenario.script = std::move(script.items);
  scenario.gradients.kind = GradientKind::values;
  scenario.gradients.values = std::move(values);
  out.ranks = run.ranks;
  out.events = std::move(script.events);
  out.reads = std::move(script.reads);
  // The loop means what the documentation says of each window, whatever its length.
  if (script.weighs) scenario.contract.normaliser = Normaliser::window;
  if (run.goes_on_after_errors) scenario.after_error = AfterError::go_on;
  end_at_error_of_the_environment(run, out);
  for (std::size_t r = 0; r < out.ranks.size(); ++r)
    for (std::size_t i = 0; i < out.ranks[r].size(); ++i)
      if (out.events[r][i] == never && !out.ranks[r][i].error.empty()) throw Inexpressible{"operation \"" + out.ranks[r][i].operation + "\", which raises"};
  return out;
}

}  // namespace

std::vector<std::vector<std::uint32_t>> operations_by_event(const Recording& recording, std::size_t events) {
  std::vector<std::vector<std::uint32_t>> out(recording.events.size(), std::vector<std::uint32_t>(events, never));
  for (std::size_t r = 0; r < recording.events.size(); ++r)
    for (std::uint32_t i = 0; i < recording.events[r].size(); ++i)
      if (recording.events[r][i] != never) out[r][recording.events[r][i]] = i;
  return out;
}

Result<Recording> express(const RecordedRun& run) {
  try {
    return make_recording(run);
  } catch (const Unreadable& unreadable) {
    return unreadable.error;
  } catch (const Inexpressible& reason) {
    return InputError{inexpressible, reason.why};
  }
}

std::optional<InputError> for_each_run(const std::string& path, const RunUse& use) {
  return for_each_line(path, [&](const std::string& line, const std::string& where) -> std::optional<InputError> {
    const auto json = read_json(line, document_bytes_max);
    if (!json) return InputError{where, json.error().text()};
    auto run = read_run(*json);
    if (!run) return InputError{where, run.error().text()};
    return use(std::move(run).value(), where);
  });
}

}  // namespace gradledger::conform
