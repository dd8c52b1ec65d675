#include "conformance/loops/script.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/load.h"
#include "conformance/recording.h"
#include "loops/loops.h"

namespace gradledger::conform::loop_runs {
namespace {

using nlohmann::json;

struct Inexpressible {
  std::string why;
};

bool true_or_false(const json& given, const std::string& key) {
  if (!given.is_boolean()) throw Inexpressible{fmt::format("{} that is neither true nor false", key)};
  return given.get<bool>();
}

// Batches of an epoch on each rank: with one sample each, the last ranks begin again where the data do not divide, unless that is dropped.
std::uint32_t batches_of(const Run& run) {
  const auto samples = static_cast<std::uint32_t>(run.tokens.size());
  const json dropped = run.arguments.value("dataloader_drop_last", json(false));
  return true_or_false(dropped, "dataloader_drop_last") ? samples / run.world : (samples + run.world - 1) / run.world;
}

// GradientAccumulationPlugin, of accelerate's loop and within a Trainer's accelerator_config. A Trainer's own loop takes no num_steps but 1, and
// before it had one it was given that of the window.
void take_plugin(const Run& run, const json& plugin, loops::LoopSetting& out) {
  for (const auto& [key, value] : plugin.items()) {
    if (key == "sync_each_batch") out.sync_each_batch = true_or_false(value, key);
    else if (key == "sync_with_dataloader") out.sync_with_dataloader = true_or_false(value, key);
    else if (key != "num_steps" || (value != 1 && value != run.accumulation)) throw Inexpressible{fmt::format("{} of {}", key, value.dump())};
  }
}

void take_trainer(const Run& run, loops::LoopSetting& out) {
  // 4.46 asks for a parameter of the name loss_kwargs, which these models do not have.
  const bool counts = run.accepts && loops::at_least(out.packages.at("transformers"), "4.47");
  out.loss = run.loss_function ? loops::Loss::function : counts ? loops::Loss::tokens : loops::Loss::mean;
  for (const auto& [key, value] : run.arguments.items()) {
    if (key == "average_tokens_across_devices") out.average_tokens = true_or_false(value, key);
    else if (key == "accelerator_config" && value.is_object() && value.size() == 1 && value.contains("gradient_accumulation_kwargs") && value.front().is_object())
      take_plugin(run, value.front(), out);
    else if (key != "dataloader_drop_last") throw Inexpressible{fmt::format("the argument {} of {}", key, value.dump())};
  }
}

constexpr std::array<std::string_view, 7> recorded{"trainer", "accelerate", "lightning", "open-instruct", "open-instruct-finetune", "nemo-rl", "nemo"};

const loops::Loop& loop_of(const Run& run) {
  const std::string name = run.loop == "trainer" ? "hf-trainer" : run.loop == "lightning" && run.manual ? "lightning-manual" : run.loop;
  const loops::Loop* found = std::find(recorded.begin(), recorded.end(), run.loop) == recorded.end() ? nullptr : loops::named(name);
  if (!found) throw Inexpressible{fmt::format("the loop \"{}\"; there are {}", run.loop, fmt::join(recorded, ", "))};
  const std::string framework = run.engine.at("framework");
  if (!found->runs_on(framework)) throw Inexpressible{fmt::format("{} on the framework {}", run.loop, framework)};
  return *found;
}

// A loop of its own has windows of one length, and no other.
bool has_epochs(const Run& run) { return run.loop != "open-instruct" && run.loop != "nemo-rl" && run.loop != "nemo"; }

loops::LoopSetting setting_of(const Run& run, const loops::Loop& loop) {
  loops::LoopSetting out;
  out.framework = run.engine.at("framework");
  out.micro_batches = run.accumulation;
  out.ranks = run.world;
  out.divides = run.divides;
  for (const loops::LoopPackage& package : loop.packages) {
    const auto release = run.versions.find(std::string(package.name));
    if (release == run.versions.end()) throw Inexpressible{fmt::format("a run that does not say its release of {}", package.name)};
    if (!loops::at_least(release->second, package.changed.front())) throw Inexpressible{fmt::format("{} {}, which is older than any that was read", package.name, release->second)};
    out.packages[std::string(package.name)] = release->second;
  }
  loops::Epoch epoch{batches_of(run), false};
  if (epoch.batches == 0) throw Inexpressible{"an epoch without batches"};
  if (run.stop_after && *run.stop_after + 1 < epoch.batches) epoch = {*run.stop_after + 1, true};
  if (has_epochs(run)) out.epochs.assign(run.epochs, epoch);
  else if (run.epochs > 1 || run.stop_after || epoch.batches % run.accumulation != 0) throw Inexpressible{"windows of several lengths, in a loop that has one"};
  else out.windows = epoch.batches / run.accumulation;
  if (run.loop == "open-instruct-finetune" && run.sums) out.loss = loops::Loss::sum;
  const json::json_pointer per_token("/config/model/calculate_per_token_loss");
  out.per_token = out.on_megatron() && run.engine.contains(per_token) && run.engine[per_token] == true;
  if (run.loop == "trainer") take_trainer(run, out);
  else if (!run.arguments.empty()) throw Inexpressible{"arguments of a Trainer, in another loop"};
  if (run.loop == "accelerate") take_plugin(run, run.plugin, out);
  else if (!run.plugin.empty()) throw Inexpressible{"a plugin of accelerate, in another loop"};
  return out;
}

// The script with every backward by itself, and the number of its data.
class Flat {
 public:
  explicit Flat(const json& script) { add(script, out); }

  json out = json::array();
  std::uint32_t backwards = 0;

 private:
  void add(const json& events, json& into) {
    for (const json& event : events) {
      if (event.contains("repeat")) {
        for (std::uint32_t i = 0; i < event["repeat"]["times"]; ++i) add(event["repeat"]["of"], into);
      } else if (event.contains("no_sync")) {
        json inner = json::array();
        add(event["no_sync"], inner);
        into.push_back({{"no_sync", std::move(inner)}});
      } else if (event.contains("backward")) {
        json one = event;
        const std::uint32_t times = one["backward"].value("micro_batches", 1u);
        one["backward"].erase("micro_batches");
        for (std::uint32_t i = 0; i < times; ++i) {
          one["backward"]["micro_batch"] = backwards++;
          into.push_back(one);
        }
      } else {
        into.push_back(event);
      }
    }
  }
};

class Builder {
 public:
  Builder(const Run& run, const loops::LoopSetting& setting, const loops::Expansion& expansion) : run_(run), setting_(setting), expansion_(expansion), script_(expansion.script) {}

  Expressed build() {
    place();
    auto read = read_scenario(document().dump(), ".");
    if (!read) throw Inexpressible{read.error().text()};
    out_.scenario = std::move(read).value();
    out_.scenario.gradients.kind = GradientKind::values;
    out_.scenario.gradients.values = std::make_shared<GivenValues>(values());
    for (std::uint32_t r = 0; r < run_.world; ++r) {
      out_.items.emplace_back();
      for (const Step& step : out_.micro_batches) out_.items.back().push_back(items(r, step));
    }
    return std::move(out_);
  }

 private:
  void place() {
    for (std::uint32_t epoch = 0, left = script_.backwards; epoch < run_.epochs; ++epoch) {
      const std::uint32_t batches = setting_.epochs.empty() ? left : setting_.epochs[epoch].batches;
      for (std::uint32_t b = 0; b < batches && left > 0; ++b, --left) out_.micro_batches.push_back({epoch, b, false, 0});
    }
  }

  json document() {
    json tokens = json::array(), window = rows();
    std::size_t next = 0;
    const auto take = [&](const json& event, const auto& self) -> void {
      if (event.contains("no_sync")) {
        for (const json& inner : event["no_sync"]) self(inner, self);
      } else if (event.contains("backward")) {
        for (std::uint32_t r = 0; r < run_.world; ++r) window[r].push_back(run_.tokens[sample_of(run_, r, out_.micro_batches[next].batch)]);
        ++next;
      } else if (event.contains("step")) {
        out_.micro_batches[next - 1].syncs = true;
        tokens.push_back(std::exchange(window, rows()));
      }
    };
    for (const json& event : script_.out) take(event, take);
    if (!window[0].empty()) tokens.push_back(std::move(window));
    json out = {{"name", "loop"}, {"world_size", run_.world}, {"allow_open", true}, {"script", script_.out}, {"contract", expansion_.contract}};
    out["parameters"] = json::array({{{"name", "w"}, {"numel", run_.tokens.size()}}});
    out["engine"] = {{"config", json::object()}, {"optimizer", {{"type", "SGD"}, {"lr", 1.0}}}};
    out["engine"].update(run_.engine);
    out["engine"]["config"].update(expansion_.config);
    if (expansion_.counts_tokens) out["tokens"] = {{"table", std::move(tokens)}};
    return out;
  }

  json rows() const { return json(std::vector<json>(run_.world, json::array())); }

  // A loss is the mean of its tokens, or their sum, and a token's gradient is 1.
  GivenValues values() const {
    GivenValues out;
    for (const Step& step : out_.micro_batches) {
      out.emplace_back(run_.world, std::vector<double>(run_.tokens.size()));
      for (std::uint32_t r = 0; r < run_.world; ++r) {
        const std::uint32_t sample = sample_of(run_, r, step.batch);
        out.back()[r][sample] = run_.sums && run_.loop != "open-instruct-finetune" ? run_.tokens[sample] : 1;
        if (run_.loss_function && leaves_out_first_tokens()) out.back()[r][sample] *= counted(r, step, 0) / counted(r, step, 1);
      }
    }
    return out;
  }

  // 4.46 counts labels[..., 1:], as a causal model's loss does; the loss of these models has the first token of a sample too.
  bool leaves_out_first_tokens() const {
    const auto release = setting_.packages.find("transformers");
    return release != setting_.packages.end() && !loops::at_least(release->second, "4.47");
  }

  // Of the batches that a Trainer fetches together: a window's, or what an epoch still has.
  double counted(std::uint32_t rank, const Step& step, std::uint32_t left_out_each) const {
    const std::uint32_t first = step.batch / run_.accumulation * run_.accumulation;
    double out = 0;
    for (std::uint32_t b = first; b < std::min(first + run_.accumulation, setting_.epochs[step.epoch].batches); ++b) out += run_.tokens[sample_of(run_, rank, b)] - left_out_each;
    if (out == 0) throw Inexpressible{"a window without tokens that are counted"};
    return out;
  }

  std::optional<double> items(std::uint32_t rank, const Step& step) const {
    if (expansion_.counted == loops::Counted::nothing) return std::nullopt;
    const std::uint32_t each = leaves_out_first_tokens() ? 1 : 0;
    if (expansion_.counted == loops::Counted::of_rank) return counted(rank, step, each);
    double out = 0;
    for (std::uint32_t r = 0; r < run_.world; ++r) out += counted(r, step, each);
    return out;
  }

  const Run& run_;
  const loops::LoopSetting& setting_;
  const loops::Expansion& expansion_;
  Flat script_;
  Expressed out_;
};

}  // namespace

std::uint32_t sample_of(const Run& run, std::uint32_t rank, std::uint32_t batch) { return static_cast<std::uint32_t>((batch * run.world + rank) % run.tokens.size()); }

Result<Expressed> express(const Run& run) {
  try {
    const loops::Loop& loop = loop_of(run);
    const loops::LoopSetting setting = setting_of(run, loop);
    if (const std::string refusal = loop.refuses ? loop.refuses(setting) : ""; !refusal.empty()) {
      Expressed out;
      out.refusal = refusal;
      return out;
    }
    return Builder(run, setting, loop.expand(setting)).build();
  } catch (const Inexpressible& reason) {
    return InputError{inexpressible, reason.why};
  }
}

}  // namespace gradledger::conform::loop_runs
