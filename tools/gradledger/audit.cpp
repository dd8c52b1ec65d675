#include "tools/gradledger/audit.h"

#include <filesystem>

#include <fmt/format.h>

#include "sim/base/limits.h"
#include "sim/execution/simulation.h"
#include "sim/scenario/parse.h"
#include "tools/gradledger/allocator.h"
#include "tools/gradledger/environment.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/numbers.h"
#include "tools/gradledger/output.h"
#include "tools/gradledger/stopwatch.h"
#include "tools/gradledger/verbs.h"
#include "verbs/findings.h"
#include "verbs/new_file.h"

namespace gradledger::tool {
namespace {

using report::AuditOutcome;

constexpr std::uint32_t windows_max = 64;

std::string loop_names() {
  std::string out;
  for (const loops::Loop& loop : loops::all()) out += fmt::format("{}{}", out.empty() ? "" : ", ", loop.name);
  return out;
}

// The command that repeats it.
std::string command_of(const AuditVerb& verb, const Options& options) {
  const audit::Request& r = verb.request;
  std::string out = "gradledger audit";
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) out += fmt::format("{} {}", option, file_word(value));
  };
  const auto number = [&](const char* option, const std::optional<std::uint32_t>& value) {
    if (value) out += fmt::format("{} {}", option, *value);
  };
  add("", r.files.config);
  add(" --trainer-args", r.files.arguments);
  add(" --framework", r.files.framework);
  add(" --deepspeed", verb.deepspeed);
  add(" --pytorch", verb.pytorch);
  add(" --transformers", verb.transformers);
  add(" --accelerate", verb.accelerate);
  for (const std::string& release : verb.releases) add(" --release", release);
  add(" --freeze", r.freeze);
  add(" --python", verb.python);
  add(" --loop", r.loop);
  add(" --script", r.script);
  number(" --ranks", r.ranks);
  number(" --micro-batches", r.micro_batches);
  if (r.windows != audit::Request{}.windows) number(" --windows", r.windows);
  if (r.last_window != 0) number(" --last-window", r.last_window);
  add(" --model", r.model);
  add(" --optimizer", r.optimizer);
  if (r.sync_each_batch) out += " --sync-each-batch";
  if (r.loss != "tokens") add(" --loss", r.loss);
  if (r.epoch_end != "data") add(" --epoch-end", r.epoch_end);
  add(" --loss-agg-mode", r.loss_agg_mode);
  if (r.dynamic_micro_batches) out += " --dynamic-micro-batches";
  if (r.optimizer_in_backward) out += " --optimizer-in-backward";
  if (r.undivided) out += " --undivided";
  add(" --grpo-loss", r.grpo_loss);
  number(" --steps-per-generation", r.steps_per_generation);
  if (r.tokens != "equal") add(" --tokens", r.tokens);
  for (const std::string& pointer : r.leave_out) add(" --leave-out", pointer);
  add(" --sweep", verb.sweep);
  return out + fmt::format(" --seed {}", options.seed);
}

std::optional<InputError> take_releases(AuditVerb& verb) {
  const std::pair<const char*, const std::string*> named[] = {
      {"deepspeed", &verb.deepspeed}, {"torch", &verb.pytorch}, {"transformers", &verb.transformers}, {"accelerate", &verb.accelerate}};
  for (const auto& [package, release] : named)
    if (!release->empty()) verb.request.releases[package] = *release;
  for (const std::string& text : verb.releases) {
    const std::size_t equals = text.find('=');
    if (equals == text.npos || equals == 0 || equals + 1 == text.size()) return InputError{"--release", fmt::format("is \"{}\"; expected PACKAGE=RELEASE", text)};
    verb.request.releases[loops::package_name(text.substr(0, equals))] = text.substr(text.find_first_not_of('=', equals));
  }
  return std::nullopt;
}

std::optional<InputError> write_scenario(const AuditVerb& verb, const Scenario& scenario) {
  std::error_code missing;
  for (const std::string* read : {&verb.request.files.config, &verb.request.files.arguments, &verb.request.freeze, &verb.request.script, &verb.request.model})
    if (!read->empty() && std::filesystem::equivalent(verb.write_scenario, *read, missing))
      return InputError{"--write-scenario", verb.write_scenario + " is a file that was read; expected one of its own"};
  if (const auto error = verbs::replace_or_write(verb.write_scenario, serialise(scenario))) return InputError{"--write-scenario", verb.write_scenario + " " + error->message};
  return std::nullopt;
}

audit::Sweep sweep_of(const std::string& text) {
  if (text == "releases") return audit::Sweep::releases;
  if (text == "stages") return audit::Sweep::stages;
  return text == "all" ? audit::Sweep::all : audit::Sweep::none;
}

int exit_code(AuditOutcome outcome) {
  switch (outcome) {
    case AuditOutcome::not_affected: return clean;
    case AuditOutcome::affected: return findings;
    case AuditOutcome::not_judged: return bad_input;
  }
  return internal_error;
}

}  // namespace

std::vector<std::string*> files_of(AuditVerb& verb) {
  audit::Request& r = verb.request;
  return {&r.files.config, &r.files.arguments, &r.freeze, &r.script};
}

CLI::App* add_audit(CLI::App& app, AuditVerb& verb) {
  CLI::App* out = app.add_subcommand("audit", "Say whether a training set-up loses gradients, since which release, and what helps");
  audit::Request& r = verb.request;
  out->add_option("FILE", r.files.config,
                  "ds_config.json, accelerate's config.yaml, a script with Megatron-LM's arguments, or options of DistributedDataParallel, FullyShardedDataParallel, "
                  "fully_shard or Megatron-FSDP; - is standard input; "
                  "may be left out where --trainer-args name one")
      ->check(some_text);
  out->add_option("--trainer-args", r.files.arguments, "Arguments of transformers' Trainer, as JSON")->check(some_text);
  out->add_option("--framework", r.files.framework, "deepspeed, ddp, fsdp1, fsdp2, megatron, megatron-fsdp or megatron-fsdp-v2, where the files do not say it")
      ->check(OneOf({"deepspeed", "ddp", "fsdp1", "fsdp2", "megatron", "megatron-fsdp", "megatron-fsdp-v2"}));
  out->add_option("--deepspeed", verb.deepspeed, "Release of DeepSpeed, or a state of its code as scenarios name it")->check(some_text);
  out->add_option("--pytorch", verb.pytorch, "Release of PyTorch, which decides about DistributedDataParallel and fully_shard")->check(some_text);
  out->add_option("--transformers", verb.transformers, "Release of transformers, which decides about the loop")->check(some_text);
  out->add_option("--accelerate", verb.accelerate, "Likewise of accelerate")->check(some_text);
  out->add_option("--release", verb.releases, "PACKAGE=RELEASE of any other package; can be given several times")->check(some_text)->allow_extra_args(false);
  out->add_option("--freeze", r.freeze, "What pip freeze printed: releases of everything")->check(some_text);
  out->add_option("--python", verb.python, "An interpreter whose environment is asked for its releases")->check(some_text);
  CLI::Option* loop = out->add_option("--loop", r.loop, "The training loop: " + loop_names())->check(some_text);
  out->add_option("--script", r.script, "A scenario whose script, contract and parameters are taken in place of a loop")->check(some_text)->excludes(loop);
  out->add_option("--ranks", r.ranks, "Ranks; the default is what files say, else 8")->check(whole_number)->check(CLI::Range(1u, limits::world_size_max));
  out->add_option("--micro-batches", r.micro_batches, "Micro-batches of a window; the default is gradient_accumulation_steps, else 4")
      ->check(whole_number)
      ->check(CLI::Range(1, 1024));
  out->add_option("--windows", r.windows, "Windows that are run")->check(whole_number)->check(CLI::Range(1u, windows_max))->capture_default_str();
  out->add_option("--last-window", r.last_window, "Micro-batches of a shorter window at the end of an epoch; 0: there is none")
      ->check(whole_number)
      ->check(CLI::Range(0, 1023))
      ->capture_default_str();
  out->add_option(
         "--model", r.model,
         "The model: a name that gradledger list models prints or a file of shapes, at its true size; NAME=SIZExSIZE,... or a JSON file of {\"name\": [sizes]}, made smaller")
      ->check(some_text);
  out->add_option("--optimizer", r.optimizer, "sgd, adam or adamw, in place of what the files say")->check(OneOf({"sgd", "adam", "adamw"}));
  out->add_option("--loss", r.loss, "hf-trainer: tokens, a model that takes num_items_in_batch, mean, or function, a compute_loss_func; open-instruct-finetune: sum")
      ->check(OneOf({"tokens", "mean", "function", "sum"}))
      ->capture_default_str();
  out->add_option("--epoch-end", r.epoch_end,
                  "accelerate, with --last-window: what ends the epoch: the data, the counter (sync_with_dataloader=False), or the loop that left it early")
      ->check(OneOf({"data", "counter", "left"}))
      ->capture_default_str();
  out->add_option("--loss-agg-mode", r.loss_agg_mode, "verl: what the loss is a mean of; token-mean if left out")
      ->check(OneOf(std::vector<std::string>(loops::agg_modes.begin(), loops::agg_modes.end())));
  out->add_flag("--dynamic-micro-batches", r.dynamic_micro_batches, "verl: use_dynamic_bsz, so that micro-batches have different numbers of sequences");
  out->add_flag("--optimizer-in-backward", r.optimizer_in_backward, "torchtune: optimizer_in_bwd");
  out->add_flag("--undivided", r.undivided, "lightning-manual: training_step does not divide its losses by the micro-batches of a window");
  out->add_flag("--sync-each-batch", r.sync_each_batch, "accelerate, hf-trainer and trl: GradientAccumulationPlugin has sync_each_batch, so that every micro-batch reduces");
  out->add_option("--grpo-loss", r.grpo_loss, "grpo: loss_type, in place of what the files say, else dapo")->check(OneOf({"grpo", "bnpo", "dr_grpo", "dapo"}));
  out->add_option("--steps-per-generation", r.steps_per_generation, "grpo: micro-batches that are generated at once; the default is gradient_accumulation_steps")
      ->check(whole_number)
      ->check(CLI::Range(1, 1024));
  out->add_option("--tokens", r.tokens, "Tokens of micro-batches: equal, or uneven")->check(OneOf({"equal", "uneven"}))->capture_default_str();
  out->add_option("--leave-out", r.leave_out, "A JSON pointer into the configuration: the key is taken for absent; can be given several times")
      ->check(some_text)
      ->allow_extra_args(false);
  out->add_option("--sweep", verb.sweep, "A matrix of verdicts: releases, stages, or all, stages by releases")->check(OneOf({"releases", "stages", "all"}));
  out->add_option("--write-scenario", verb.write_scenario, "Write the scenario that was judged to this file")->check(some_text);
  return out;
}

int audit(const Options& options, AuditVerb& verb, const Output& out) {
  if (const auto error = take_releases(verb)) {
    complain(*error);
    return bad_input;
  }
  if (!verb.python.empty()) {
    auto installed = installed_releases(verb.python);
    if (!installed) {
      complain(installed.error());
      return bad_input;
    }
    verb.request.installed = std::move(installed).value();
  }
  const Stopwatch watch;
  const audit::Resolved resolved = audit::resolve(verb.request);
  for (const InputError& error : resolved.errors) complain(error);
  if (!resolved.setup) return bad_input;
  give_back_idle_memory();
  try {
    audit::Audited audited = audit::audit(*resolved.setup, options, sweep_of(verb.sweep));
    if (!audited.refused.empty()) {
      complain(verb.request.files.config.empty() ? InputError{"", "the set-up is refused: " + audited.refused}
                                                 : InputError{verb.request.files.config, "is refused: " + audited.refused});
      return bad_input;
    }
    report::AuditReport& report = audited.report;
    report.command = command_of(verb, options);
    report.replay_command = verb.write_scenario.empty() ? report.command + " --write-scenario audit.json; gradledger replay audit.json"
                                                        : "gradledger replay " + shell_word(verb.write_scenario) + fmt::format(" --seed {}", options.seed);
    report.scenario_file = verb.write_scenario;
    report.seconds = watch.seconds();
    if (!verb.write_scenario.empty())
      if (const auto error = write_scenario(verb, *audited.scenario)) {
        complain(*error);
        return bad_input;
      }
    if (!verb.write_scenario.empty()) verbs::locate(verb.write_scenario, report.findings);
    out.print(report);
    return exit_code(report.outcome);
  } catch (const ProgramsTooLarge&) {
    complain({"--memory-limit", "is too small for this audit; expected a larger one, fewer ranks, or fewer micro-batches", true});
    return unavailable;
  }
}

}  // namespace gradledger::tool
