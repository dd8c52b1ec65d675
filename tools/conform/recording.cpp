#include "tools/conform/recording.h"

#include <algorithm>
#include <limits>

#include "sim/scenario/parse.h"
#include "sim/scenario/timeline.h"

namespace gradledger::conform {
namespace {

using nlohmann::json;

// The state of the code that a version label of the recordings stands for.
std::optional<std::string> as_of_label(const std::string& label) {
  if (label == "head") return "head";
  if (label.starts_with("pre")) return "before #" + label.substr(3);
  if (label.starts_with("post")) return "#" + label.substr(4);
  return std::nullopt;
}

double number(const json& value) {
  if (value.is_number()) return value.get<double>();
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  if (text == "nan" || text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  const bool negative = text.starts_with('-');
  return negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
}

std::vector<double> numbers(const json& array) {
  std::vector<double> out;
  for (const json& value : array) out.push_back(number(value));
  return out;
}

// Builds the script: operations become events one for one, blocks become nested items.
// Operations may replace a micro-batch's gradient: each such variant is appended to the values as a micro-batch of its own.
class ScriptBuilder {
 public:
  ScriptBuilder(const Scenario& scenario, GivenValues& values)
      : scenario_(scenario), values_(values), boundary_(scenario.engine.config.gradient_accumulation_steps) {}

  std::optional<std::string> add(const json& op) {
    const std::string kind = op.at(0);
    ScriptItem item;
    if (kind == "fb" || kind == "f" || kind == "b") {
      const std::uint32_t micro_batch = op.at(1);
      if (kind == "f") {
        item.kind = ScriptKind::forward;
        forwards_[micro_batch] = next_forward_++;
        put(item);
        return std::nullopt;
      }
      item.kind = ScriptKind::backward;
      item.micro_batch = micro_batch;
      if (kind == "b") {
        const auto forward = forwards_.find(micro_batch);
        if (forward == forwards_.end()) return "a backward without its forward";
        item.of = forward->second;
      }
      if (op.size() > 2)
        for (const auto& [option, value] : op.at(2).items())
          if (const auto why = apply(option, value, item)) return why;
      put(item);
    } else if (kind == "boundary") {
      item.kind = ScriptKind::set_boundary;
      item.boundary = op.at(1);
      boundary_.set(item.boundary);
      put(item);
    } else if (kind == "step") {
      if (boundary_.step()) next_forward_ = 0;  // forwards are numbered by window
      put(item);
    } else if (kind == "zero_grad" || kind == "opt_zero_grad") {
      item.kind = kind == "zero_grad" ? ScriptKind::engine_zero_grad : ScriptKind::optimizer_zero_grad;
      put(item);
    } else if (kind == "no_sync") {
      if (block_) return "nested no_sync blocks";
      block_.emplace();
      block_->kind = ScriptKind::no_sync;
    } else if (kind == "end") {
      if (!block_) return "the end of a block that is not no_sync";
      ScriptItem done = std::move(*block_);
      block_.reset();
      put(done);
    } else if (kind == "coalesce") {
      return "coalesce_grad_reduction";
    } else {
      return "operation \"" + kind + "\"";
    }
    return std::nullopt;
  }

  std::vector<ScriptItem> take() { return std::move(items_); }
  bool open_block() const { return block_.has_value(); }

 private:
  std::optional<std::string> apply(const std::string& option, const json& value, ScriptItem& item) {
    if (option == "retain_graph") return std::nullopt;  // a graph that is used again shows in the script
    if (option == "use") {
      if (value.is_object()) {
        for (const auto& [rank, used] : value.items())
          if (used != value.begin().value()) return "a backward that uses different parameters on different ranks";
        return apply(option, value.begin().value(), item);
      }
      for (std::uint32_t p : value) item.uses.push_back(scenario_.parameters.at(p).name);
      if (item.uses.empty()) return "a backward that uses no parameter";
      return std::nullopt;
    }
    std::vector<std::vector<double>> ranks = values_.at(*item.micro_batch);
    if (option == "inf") {
      for (std::uint32_t rank : value) ranks.at(rank).at(0) = std::numeric_limits<double>::infinity();
    } else if (option == "value") {
      for (std::vector<double>& flat : ranks) std::fill(flat.begin(), flat.end(), number(value));
    } else if (option == "values") {
      for (std::size_t r = 0; r < ranks.size(); ++r) std::fill(ranks[r].begin(), ranks[r].end(), number(value.at(r)));
    } else {
      return "an operation with option \"" + option + "\"";
    }
    values_.push_back(std::move(ranks));
    item.micro_batch = static_cast<std::uint32_t>(values_.size() - 1);
    return std::nullopt;
  }

  void put(const ScriptItem& item) { (block_ ? block_->items : items_).push_back(item); }

  const Scenario& scenario_;
  GivenValues& values_;
  DocumentedBoundary boundary_;
  std::vector<ScriptItem> items_;
  std::optional<ScriptItem> block_;
  std::map<std::uint32_t, std::uint32_t> forwards_;
  std::uint32_t next_forward_ = 0;
};

std::shared_ptr<GivenValues> values_of(const json& grads, std::uint32_t world, std::uint32_t micro_batches) {
  auto values = std::make_shared<GivenValues>();
  for (std::uint32_t m = 0; m < micro_batches; ++m) {
    values->emplace_back();
    for (std::uint32_t r = 0; r < world; ++r) {
      std::vector<double> flat;
      for (const json& parameter : grads.at("rank" + std::to_string(r)).at("mb" + std::to_string(m)))
        for (double x : numbers(parameter)) flat.push_back(x);
      values->back().push_back(std::move(flat));
    }
  }
  return values;
}

RecordedMoment moment_of(const json& entry) {
  RecordedMoment out;
  for (const json& word : entry.at("op")) out.operation += (out.operation.empty() ? "" : " ") + (word.is_string() ? word.get<std::string>() : word.dump());
  if (entry.contains("error")) out.error = entry["error"];
  if (entry.contains("snap"))
    for (const auto& [name, value] : entry["snap"].items())
      if (value.is_object() && value.contains("raw")) out.buffers[name] = numbers(value["raw"]);
  if (entry.contains("params"))
    for (const json& parameter : entry["params"]) out.parameters.push_back(numbers(parameter));
  if (entry.contains("global_grad_norm") && entry["global_grad_norm"].is_number()) out.norm = entry["global_grad_norm"].get<double>();
  return out;
}

Result<Recording> read(const json& line) {
  const auto inexpressible_because = [](std::string why) { return InputError{inexpressible, std::move(why)}; };
  const json& spec = line.at("spec");
  Recording out;
  out.name = line.at("name");
  out.version = line.at("version");
  Scenario& scenario = out.scenario;
  scenario.name = out.name;
  scenario.world_size = spec.at("world");
  if (scenario.world_size < 1 || scenario.world_size > 128) return InputError{"", "a world of " + std::to_string(scenario.world_size) + " ranks"};
  for (std::size_t p = 0; p < spec.at("sizes").size(); ++p)
    scenario.parameters.push_back({"param" + std::to_string(p), spec["sizes"][p].get<std::uint32_t>(), std::nullopt});

  const auto as_of = as_of_label(out.version);
  if (!as_of || !point_named(*as_of, "")) return inexpressible_because("version \"" + out.version + "\" is not known");
  scenario.engine.as_of.base = *as_of;
  auto config = parse_deepspeed_config(spec.at("config"), scenario.world_size, "");
  if (!config) return inexpressible_because("configuration: " + config.error().text());
  scenario.engine.config = std::move(config).value();
  scenario.model_dtype = scenario.engine.config.bf16.enabled   ? Dtype::bfloat16
                         : scenario.engine.config.fp16.enabled ? Dtype::float16
                                                               : Dtype::float32;
  const std::uint32_t stage = scenario.engine.config.zero.stage;
  if ((stage == 1 || stage == 2) && !scenario.engine.config.zero.contiguous_gradients && !scenario.engine.config.offloads_optimizer())
    return inexpressible_because("contiguous_gradients false reduces nothing in the recordings' CPU environment, which the framework on a GPU does");
  if (spec.value("continue_on_error", false)) return inexpressible_because("it goes on after an error");

  for (const json& rank : line.at("ranks"))
    if (rank.contains("init_error")) {
      out.refusal = rank["init_error"];
      return out;
    }

  const std::shared_ptr<GivenValues> values = values_of(line.at("grads"), scenario.world_size, spec.at("n_mb"));
  ScriptBuilder script(scenario, *values);
  for (const json& op : spec.at("ops"))
    if (const auto why = script.add(op)) return inexpressible_because(*why);
  if (script.open_block()) return inexpressible_because("a block that does not end");
  scenario.script = script.take();
  scenario.gradients.kind = GradientKind::values;
  scenario.gradients.values = values;
  for (const json& rank : line.at("ranks")) {
    out.ranks.emplace_back();
    for (const json& entry : rank.at("trace")) out.ranks.back().push_back(moment_of(entry));
  }
  return out;
}

}  // namespace

Result<Recording> read_recording(const json& line) {
  try {
    return read(line);
  } catch (const json::exception& error) {
    return InputError{"", std::string("is not a recording: ") + error.what()};
  }
}

}  // namespace gradledger::conform
