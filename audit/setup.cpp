#include "audit/setup.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "audit/megatron_fsdp_files.h"
#include "audit/megatron_fsdp_options.h"
#include "audit/model.h"
#include "sim/base/files.h"
#include "sim/base/limits.h"
#include "sim/load.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/parse.h"
#include "sim/scenario/spelling.h"

namespace gradledger::audit {
namespace {

using nlohmann::json;

constexpr std::uint32_t ranks_default = 8, micro_batches_default = 4;

std::vector<std::string> loop_names() {
  std::vector<std::string> out;
  for (const loops::Loop& loop : loops::all()) out.emplace_back(loop.name);
  return out;
}

std::vector<std::string> loop_names_on(std::string_view framework) {
  std::vector<std::string> out;
  for (const loops::Loop& loop : loops::all())
    if (loop.runs_on(framework)) out.emplace_back(loop.name);
  return out;
}

std::string names_of(bool (*of)(const loops::Loop&)) {
  std::vector<std::string_view> out;
  for (const loops::Loop& loop : loops::all())
    if (of(loop)) out.push_back(loop.name);
  return fmt::format("{}", fmt::join(out, ", "));
}

// The loop that people have where no file and no option says it.
std::string usual_loop(const Framework& framework, const Given& given, bool trainer) {
  if (trainer) return "hf-trainer";
  if (given.of_megatron_lm) return "megatron";
  return framework.id() == "deepspeed" || framework.id() == "megatron" ? std::string(framework.id()) : "no-sync";
}

class Resolving {
 public:
  explicit Resolving(const Request& request) : request_(request) {}

  Resolved resolve() {
    releases();
    given_ = read_files(request_.files, known_);
    out_.errors.insert(out_.errors.begin(), given_.errors.begin(), given_.errors.end());
    model();
    framework();
    if (setup_.framework) {
      loop();
      configuration();
      state();
    }
    if (out_.errors.empty()) out_.setup = std::move(setup_);
    return std::move(out_);
  }

 private:
  void fail(InputError error) { out_.errors.push_back(std::move(error)); }

  // Options before the environment before a list: what is said by hand is meant.
  void releases() {
    if (!request_.freeze.empty()) {
      const auto text = read_file(request_.freeze);
      const auto frozen = text ? loops::releases_of_freeze(*text, request_.freeze) : Result<loops::Releases>(text.error());
      if (frozen) known_ = *frozen;
      else fail(frozen.error());
    }
    if (request_.installed)
      for (const auto& [package, release] : *request_.installed) known_[package] = release;
    for (const auto& [package, release] : request_.releases) known_[package] = release;
  }

  void model() {
    auto shapes = model_of(request_.model);
    if (!shapes) return fail(shapes.error());
    setup_.parameters = shapes->parameters;
    setup_.model = shapes->says;
    model_ = std::move(shapes).value();
  }

  void framework() {
    const std::string id = given_.framework.empty() ? "deepspeed" : given_.framework;
    const Framework* found = framework_named(id);
    if (!found || !found->user_config())
      return fail({"--framework",
                   fmt::format("is \"{}\", whose configuration an audit does not read; expected deepspeed, ddp, fsdp1, fsdp2, megatron, megatron-fsdp or megatron-fsdp-v2", id)});
    if (!given_.config && (id == "ddp" || id == "fsdp1" || id == "fsdp2" || id.starts_with("megatron-fsdp"))) given_.config = Document{"", json::object(), {}};
    if (!given_.config) {
      if (given_.errors.empty()) fail({"FILE", "is missing; expected ds_config.json, accelerate's config.yaml, a script with Megatron-LM's arguments, or --trainer-args"});
      return;
    }
    setup_.framework = found;
  }

  void loop() {
    if (!request_.script.empty()) return script();
    const bool trainer = !request_.files.arguments.empty();
    const std::string name = !request_.loop.empty() ? request_.loop : usual_loop(*setup_.framework, given_, trainer);
    setup_.loop = loops::named(name);
    if (!setup_.loop) return fail({"--loop", fmt::format("is \"{}\"; expected one of {}{}", name, fmt::join(loop_names(), ", "), suggestion(name, loop_names()))});
    const std::string_view id = setup_.framework->id();
    if (!setup_.loop->runs_on(id))
      return fail({"--loop", fmt::format("is \"{}\", which is not written for {}; expected one of {}", name, setup_.framework->title(), fmt::join(loop_names_on(id), ", "))});
    for (const loops::LoopPackage& package : setup_.loop->packages) take_package(package);
  }

  void take_package(const loops::LoopPackage& package) {
    const std::string name(package.name);
    const auto found = known_.find(name);
    const std::string release = found == known_.end() ? std::string(package.newest) : found->second;
    if (!loops::at_least(release, package.changed.front()))
      return fail({"--release " + name, fmt::format("is {}; expected {} or newer, the oldest whose loop is known here", release, package.changed.front())});
    if (const std::string_view first = loops::first_release_with(setup_.framework->id(), name); !loops::at_least(release, first))
      return fail({"--release " + name, fmt::format("is {}; expected {} or newer, which have {}", release, first, setup_.framework->title())});
    setup_.setting.packages[name] = release;
    std::string says = name + " " + release;
    if (found == known_.end()) says += " (assumed, the newest that was read: --release " + name + "=X)";
    else if (!loops::at_least(package.newest, release)) says += fmt::format(" (newer than what was read, taken as {})", package.newest);
    setup_.packages.push_back(says);
  }

  void script() {
    if (!request_.loop.empty()) fail({"--script", "and --loop are given; expected one of the two"});
    std::vector<InputError> errors;
    const auto scenario = load_scenario(request_.script, {}, &errors);
    for (InputError& error : errors) fail(std::move(error));
    if (!scenario) return;
    setup_.script_of = to_json(*scenario);
  }

  std::uint32_t ranks() const {
    if (request_.ranks) return *request_.ranks;
    if (setup_.script_of.is_object()) return setup_.script_of["world_size"];
    return given_.ranks.value_or(ranks_default);
  }

  // How many micro-batches a window has, where the configuration leaves it open.
  void hint_accumulation(UserConfigHints& hints) const {
    const bool counted = setup_.loop && setup_.loop->counted_by_framework;
    if (setup_.loop && !counted) {
      hints.accumulation_steps = 1;
      hints.accumulation_why = "the loop has windows of its own";
    } else if (request_.micro_batches) {
      hints.accumulation_steps = *request_.micro_batches;
      hints.accumulation_why = "--micro-batches";
    } else if (given_.arguments.gradient_accumulation_steps) {
      hints.accumulation_steps = *given_.arguments.gradient_accumulation_steps;
      hints.accumulation_why = "the Trainer's gradient_accumulation_steps";
    } else {
      hints.accumulation_steps = micro_batches_default;
      hints.accumulation_why = "nobody says how many: --micro-batches";
    }
  }

  void configuration() {
    Document& file = *given_.config;
    for (const std::string& pointer : request_.leave_out) leave_out(file, pointer);
    const bool ranks_are_stated = request_.ranks || setup_.script_of.is_object() || given_.ranks;
    UserConfigHints hints{.ranks = ranks(),
                          .ranks_are_stated = ranks_are_stated,
                          .machines = given_.machines,
                          .arguments = given_.arguments,
                          .accumulation_steps = {},
                          .accumulation_why = {},
                          .shrink = model_.shrink,
                          .hidden_size = model_.hidden_size,
                          .layers = model_.layers,
                          .parameters = setup_.script_of.is_object() ? json() : model_.listed,
                          .stand_in = model_.stand_in,
                          .rows = model_.rows};
    hint_accumulation(hints);
    UserConfig read = given_.of_megatron_lm ? megatron_fsdp_options(file.json, hints) : setup_.framework->user_config()->read(file.json, hints);
    for (const InputError& error : read.errors) fail({file.where(error.where), error.message});
    for (const FilledValue& f : given_.filled) setup_.filled.push_back({file.file, f.pointer, f.value, f.why});
    for (const FilledValue& f : read.filled) setup_.filled.push_back({file.file, f.pointer, f.value, f.why});
    setup_.config = std::move(read.config);
    setup_.ranks = read.ranks.value_or(hints.ranks);
    if (setup_.ranks > limits::world_size_max) return fail({"--ranks", fmt::format("is {}; expected at most {}", setup_.ranks, limits::world_size_max)});
    setup_.groups = std::move(read.groups);
    setup_.layout = std::move(read.layout);
    if (read.parameters.is_array()) setup_.parameters = std::move(read.parameters);
    setup_.model_dtype = read.model_dtype;
    collect(setup_.ignored, given_.ignored, read.ignored);
    collect(setup_.unknown, given_.unknown, read.unknown);
    collect(setup_.notes, given_.notes, read.notes);
    collect(setup_.not_modelled, given_.not_modelled, read.not_modelled);
    setup_.not_judged = std::move(read.not_judged);
    take_optimizer(read);
    setup_.uneven_tokens = request_.tokens == "uneven";
    if (setup_.loop && read.errors.empty()) take_window(read.micro_batches);
  }

  static void collect(std::vector<std::string>& into, const std::vector<std::string>& some, const std::vector<std::string>& more) {
    into.insert(into.end(), some.begin(), some.end());
    into.insert(into.end(), more.begin(), more.end());
  }

  void leave_out(Document& file, const std::string& pointer) {
    try {
      const json::json_pointer at(pointer);
      if (at.empty() || !file.json.contains(at)) return fail({"--leave-out", pointer + " is not in the configuration; expected a JSON pointer to one of its keys"});
      file.json.at(at.parent_pointer()).erase(at.back());
      setup_.notes.push_back(pointer + " is left out, as --leave-out asks.");
    } catch (const json::exception&) {
      fail({"--leave-out", pointer + " is no JSON pointer to a key; expected one such as /zero_optimization/zenflow"});
    }
  }

  // What the file says, else the option, else what Trainers have.
  void take_optimizer(const UserConfig& read) {
    const std::string asked = !request_.optimizer.empty() ? request_.optimizer : read.optimizer_name;
    setup_.optimizer = read.optimizer.is_object() ? read.optimizer : json{{"type", "AdamW"}, {"torch_adam", true}};
    setup_.optimizer_name = asked;
    if (!request_.optimizer.empty()) setup_.optimizer = {{"type", request_.optimizer == "sgd" ? "SGD" : request_.optimizer == "adam" ? "Adam" : "AdamW"}};
    else if (asked.empty()) {
      const std::string optim = given_.arguments.optim.value_or("adamw");
      setup_.optimizer_name = optim.starts_with("sgd") ? "SGD" : optim.starts_with("adam") ? "AdamW" : optim;
      if (optim.starts_with("sgd")) setup_.optimizer = {{"type", "SGD"}, {"lr", 0.5}};
      setup_.filled.push_back({given_.config->file, "/optimizer", setup_.optimizer_name, given_.arguments.optim ? "the Trainer's optim" : "the file names none: --optimizer"});
    }
    // Between ranks of 16-bit weights a step of a half is exact; no weight of the ledger depends on it.
    if (setup_.framework->id() != "deepspeed" && setup_.optimizer["type"] == "SGD") setup_.optimizer["lr"] = 0.5;
  }

  // `of_file`: where the file says it beside the configuration.
  void take_window(std::optional<std::uint32_t> of_file) {
    loops::LoopSetting& s = setup_.setting;
    const std::uint32_t counted = setup_.framework->user_config()->counted_window(setup_.config);
    const auto said = request_.micro_batches ? request_.micro_batches : of_file ? of_file : given_.arguments.gradient_accumulation_steps;
    if (request_.micro_batches && of_file && *request_.micro_batches != *of_file)
      fail({"--micro-batches", fmt::format("is {}, and the batch sizes of the file make it {}; expected the same number, or none", *request_.micro_batches, *of_file)});
    const bool by_engine = setup_.loop->counted_by_framework && setup_.framework->id() == "deepspeed";
    s.framework = setup_.framework->id();
    s.counted = counted;
    s.micro_batches = by_engine ? counted : said.value_or(counted > 1 ? counted : micro_batches_default);
    if (by_engine && said && *said != counted)
      fail({request_.micro_batches ? "--micro-batches" : "the Trainer's gradient_accumulation_steps",
            fmt::format("is {}, but gradient_accumulation_steps of the configuration is {}, and {} goes by both; expected the same number", *said, counted, setup_.loop->name)});
    if (!by_engine && !said && counted == 1) setup_.filled.push_back({"", "micro-batches of a window", std::to_string(s.micro_batches), "nobody says how many: --micro-batches"});
    s.windows = request_.windows;
    s.last_window = request_.last_window;
    if (s.last_window >= s.micro_batches)
      fail({"--last-window", fmt::format("is {}, and a window has {} micro-batches; expected fewer than these", s.last_window, s.micro_batches)});
    if (s.last_window > 0 && !has_epochs(*setup_.loop)) fail({"--last-window", "is for loops whose epochs end in it: " + names_of(has_epochs)});
    if (setup_.loop->name == "grpo") take_grpo();
    take_options_of_one_loop();
    s.sync_each_batch = request_.sync_each_batch || given_.arguments.sync_each_batch.value_or(false);
    constexpr std::array<std::pair<std::string_view, loops::Loss>, 3> named{{{"mean", loops::Loss::mean}, {"function", loops::Loss::function}, {"sum", loops::Loss::sum}}};
    const auto loss = std::find_if(named.begin(), named.end(), [&](const auto& each) { return each.first == request_.loss; });
    s.loss = loss == named.end() ? loops::Loss::tokens : loss->second;
    s.average_tokens = given_.average_tokens;
  }

  // Options that one loop alone has.
  void take_options_of_one_loop() {
    loops::LoopSetting& s = setup_.setting;
    const auto only_for = [&](const char* option, bool given, std::string_view loop) {
      if (given && setup_.loop->name != loop) fail({option, fmt::format("is for the loop {}; the loop here is {}", loop, setup_.loop->name)});
    };
    only_for("--epoch-end", request_.epoch_end != "data", "accelerate");
    only_for("--loss-agg-mode", !request_.loss_agg_mode.empty(), "verl");
    only_for("--dynamic-micro-batches", request_.dynamic_micro_batches, "verl");
    only_for("--optimizer-in-backward", request_.optimizer_in_backward, "torchtune");
    only_for("--undivided", request_.undivided, "lightning-manual");
    only_for("--loss sum", request_.loss == "sum", "open-instruct-finetune");
    if (request_.epoch_end != "data" && s.last_window == 0) fail({"--epoch-end", "says how an epoch ends in a shorter window, and there is none; expected --last-window"});
    s.leaves_early = request_.epoch_end == "left";
    s.sync_with_dataloader = request_.epoch_end != "counter";
    s.verl.dynamic = request_.dynamic_micro_batches;
    s.optimizer_in_backward = request_.optimizer_in_backward;
    s.divides = !request_.undivided;
    const auto at = std::find(loops::agg_modes.begin(), loops::agg_modes.end(), request_.loss_agg_mode);
    if (at != loops::agg_modes.end()) s.verl.mode = static_cast<loops::AggMode>(at - loops::agg_modes.begin());
  }

  // trl/trainer/grpo_config.py, __post_init__, at 1.16.0.
  void take_grpo() {
    loops::LoopSetting& s = setup_.setting;
    const std::vector<std::string> names{"grpo", "bnpo", "dr_grpo", "dapo"};
    const std::string name = !request_.grpo_loss.empty() ? request_.grpo_loss : given_.grpo_loss.value_or("dapo");
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end())
      return fail({"loss_type", fmt::format("is \"{}\", of which there is no model here; expected one of {}{}", name, fmt::join(names, ", "), suggestion(name, names))});
    s.grpo.loss = static_cast<loops::GrpoLoss>(at - names.begin());
    if (request_.grpo_loss.empty() && !given_.grpo_loss) setup_.filled.push_back({"", "loss_type", name, "TRL's default: --grpo-loss"});
    if (s.last_window > 0) fail({"--last-window", "is for loops that end an epoch in it; of GRPOTrainer that was not read"});
    s.grpo.steps_per_generation = request_.steps_per_generation.value_or(steps_per_generation());
    s.grpo.num_iterations = given_.num_iterations.value_or(1);
  }

  std::uint32_t steps_per_generation() {
    if (!given_.generation_batch_size) return given_.steps_per_generation.value_or(setup_.setting.micro_batches);
    if (given_.steps_per_generation) fail({"generation_batch_size", "is given, and so is steps_per_generation; expected one of the two"});
    const std::uint32_t size = *given_.generation_batch_size, batch = given_.arguments.per_device_train_batch_size.value_or(8) * setup_.ranks;
    if (size % batch != 0) fail({"generation_batch_size", fmt::format("is {}; expected a multiple of {}, one micro-batch of all ranks", size, batch)});
    return std::max(1u, size / batch);
  }

  // Of a release of Megatron-Core that is said, the copy of Megatron-FSDP in it.
  void release_in_core() {
    const auto core = known_.find("megatron-core");
    if (!given_.of_megatron_lm || core == known_.end() || known_.contains("megatron-fsdp")) return;
    if (setup_.framework->id() == "megatron-fsdp-v2")
      return fail({"--release megatron-core", "is " + core->second + ", which has no --megatron-fsdp-version; expected none, for the head that has it"});
    const std::string inside = megatron_fsdp_in(core->second);
    if (inside.empty())
      return fail({"--release megatron-core", "is " + core->second + "; expected 0.14 or later, with which --use-megatron-fsdp is the Megatron-FSDP that is modelled"});
    known_["megatron-fsdp"] = inside;
    setup_.notes.push_back(fmt::format("Megatron-Core {} has the code of megatron-fsdp {}.", core->second, inside));
  }

  void state() {
    release_in_core();
    const std::string package = package_of(*setup_.framework), option = package == "deepspeed" ? "--deepspeed" : "--release " + package;
    const auto found = known_.find(package);
    if (found == known_.end()) {
      setup_.as_of = "head";
      const bool several = setup_.framework->history() || !setup_.framework->user_config()->releases().empty();
      const std::string how = package == "deepspeed" ? "--deepspeed X" : option + "=X";
      if (several) setup_.packages.insert(setup_.packages.begin(), fmt::format("{}: no release is said, taken as it is at head ({})", package, how));
      return;
    }
    // A state by name, as lists and scenarios have it, goes through as it is; so does a release of a framework that refuses those it does not know.
    const bool refuses_others = !setup_.framework->history() && !setup_.framework->user_config()->releases().empty();
    const auto installed = refuses_others ? std::nullopt : setup_.framework->installed({{package, found->second}});
    // Runs of an installed framework take what was never compared as its newest. An answer about it may not.
    const bool unknown = installed && installed->base == AsOf{}.base;
    const bool without_build = refuses_others || unknown;
    setup_.as_of = installed && !unknown ? installed->base : found->second.substr(0, without_build ? found->second.find('+') : found->second.npos);
    if (const auto problem = setup_.framework->as_of_problem({setup_.as_of, {}})) fail({package == "torch" ? "--pytorch" : option, problem->message});
    else if (const auto note = setup_.framework->as_of_note(setup_.as_of)) setup_.notes.push_back(*note + ".");
  }

  const Request& request_;
  Given given_;
  loops::Releases known_;
  ModelShapes model_;
  Setup setup_;
  Resolved out_;
};

}  // namespace

std::string package_of(const Framework& framework) {
  if (framework.id() == "megatron") return "megatron-core";
  if (framework.id().starts_with("megatron-fsdp")) return "megatron-fsdp";
  return framework.id() == "deepspeed" ? "deepspeed" : "torch";
}

bool has_epochs(const loops::Loop& loop) { return (loop.counted_by_framework && loop.name != "deepspeed" && loop.name != "grpo") || loop.has_tails; }

Resolved resolve(const Request& request) { return Resolving(request).resolve(); }

}  // namespace gradledger::audit
