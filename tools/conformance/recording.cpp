#include "tools/conformance/recording.h"

#include <algorithm>

#include "sim/frameworks/deepspeed/settings.h"
#include "sim/scenario/json_reader.h"
#include "sim/frameworks/deepspeed/config_json.h"
#include "sim/scenario/optimizer_json.h"
#include "sim/scenario/parse.h"
#include "tools/conformance/files.h"
#include "tools/conformance/script.h"

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
  const ZeroConfig& zero = deepspeed_config(scenario).zero;
  if ((zero.stage == 1 || zero.stage == 2) && !zero.contiguous_gradients && !deepspeed_config(scenario).offloads_optimizer())
    scenario.engine.as_of.switches["separate_buckets"] = "dropped";  // recordings come from CPUs
  // A CPU has one stream: nothing is freed while a reduction still reads it.
  if ((zero.stage == 1 || zero.stage == 2) && zero.overlap_comm.value_or(false)) scenario.engine.as_of.switches["overlap_lifetime"] = "after_reduction";
}

// PyTorch's CPU build raises this where it zeroes a host tensor in pinned memory, and a run on a GPU does not: judged up to there.
constexpr const char* error_of_the_environment = "RuntimeError: unknown parameter type";

void end_at_error_of_the_environment(Recording& recording) {
  for (std::vector<RecordedMoment>& moments : recording.ranks) {
    const auto at = std::find_if(moments.begin(), moments.end(), [](const RecordedMoment& m) { return m.error.starts_with(error_of_the_environment); });
    if (at == moments.end()) continue;
    recording.left_out = "operations from " + std::to_string(at - moments.begin()) + " on, where the recording's CPU environment raises what a GPU does not";
    moments.erase(at, moments.end());
  }
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
  Script script = make_script(Field(run.operations, "operations"), scenario, *values);
  if (!run.refusal.empty()) {
    out.refusal = run.refusal;
    return out;
  }
  if (script.inexpressible) throw Inexpressible{*script.inexpressible};
  scenario.script = std::move(script.items);
  scenario.gradients.kind = GradientKind::values;
  scenario.gradients.values = std::move(values);
  out.ranks = run.ranks;
  if (run.goes_on_after_errors) scenario.after_error = AfterError::go_on;
  end_at_error_of_the_environment(out);
  return out;
}

}  // namespace

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
    const auto json = read_json(line);
    if (!json) return InputError{where, json.error().text()};
    auto run = read_run(*json);
    if (!run) return InputError{where, run.error().text()};
    return use(std::move(run).value(), where);
  });
}

}  // namespace gradledger::conform
