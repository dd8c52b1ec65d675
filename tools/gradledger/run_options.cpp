#include "tools/gradledger/run_options.h"

#include <string>
#include <vector>

#include "report/format.h"
#include "report/results.h"
#include "tools/gradledger/drivers.h"
#include "tools/gradledger/look.h"
#include "tools/gradledger/numbers.h"
#include "verbs/compare.h"

namespace gradledger::tool {

void add_deadline(CLI::App* verb, Options& options) {
  verb->add_option("--deadline", options.deadline_s, "Seconds after which a rank in a process of its own, or on a GPU, that does not answer is given up")
      ->check(whole_number)
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
}

void add_compare(CLI::App* verb, Options& options) {
  verb->add_option("--compare", options.compare, "Two producers, as host,gpu: hold their traces against each other bit for bit, and judge nothing")->check(verbs::check_compare);
}

void add_format(CLI::App* verb, Options& options, const std::string& json_is) {
  std::vector<std::string> names;
  for (const report::Format& format : report::formats()) names.emplace_back(format.name);
  CLI::Option* json = verb->add_flag("--json", options.json, json_is);
  verb->add_option("--format", options.format, "Form of the report; --json is short for --format json")->check(OneOf(names))->excludes(json)->capture_default_str();
  add_look(verb, options.look);
}

void add_memory_limit(CLI::App* verb, Options& options) {
  verb->add_option("--memory-limit", options.memory_limit, "Bytes that a judgement may need")
      ->transform(CLI::AsSizeValue(false))
      ->transform(CLI::Validator(size_in_bytes, ""))  // comes first
      ->capture_default_str();
}

void add_run(CLI::App* verb, Options& options, const char* json_of) {
  verb->add_option("--seed", options.seed, "Seed of the schedule, the probes and the random data")->check(whole_number)->capture_default_str();
  add_format(verb, options, std::string("One JSON object a ") + json_of + " instead of text");
  add_memory_limit(verb, options);
}

void add_html(CLI::App* verb, Options& options) {
  verb->add_option("--html", options.html, "Write the report to this file too, as one page for a browser that loads nothing from a network");
}

void add_records(CLI::App* verb, Options& options) {
  verb->add_option("--records", options.records, "Write what --json prints to this file too, a record at a time; {shard} in its name is which shard it is, as 2-of-4")
      ->check(some_text);
}

void add_config(CLI::App* verb, Options& options) {
  verb->add_option("--config", options.instead_config, "KEY=VALUE of the configuration in place of what the file says, as zero_optimization.stage=2; can be given several times")
      ->allow_extra_args(false);
}

void add_overrides(CLI::App* verb, Options& options) {
  verb->add_option("--as-of", options.instead_as_of, "Release or change of the framework in place of what the file says")->check(some_text);
  add_config(verb, options);
}

std::optional<InputError> take_overrides(Options& options) {
  if (!options.instead_as_of.empty() && options.producer != "host" && options.producer != "gpu")
    return InputError{"--as-of", "says which release is simulated, and --producer " + options.producer + " runs the one that is installed; expected one of the two"};
  if (!options.instead_as_of.empty()) options.overrides.push_back(as_of_override(options.instead_as_of));
  for (const std::string& text : options.instead_config) {
    auto read = config_override(text);
    if (!read) return read.error();
    options.overrides.push_back(std::move(read).value());
  }
  return std::nullopt;
}

void add_producer(CLI::App* verb, Options& options) {
  verb->add_option("--producer", options.producer,
                   "Who runs the script: host, gpu, a real framework (deepspeed, ddp, fsdp2, fsdp1, megatron, megatron-fsdp, megatron-fsdp-v2, torch), or a driver "
                   "of your own (python:MODULE:FACTORY, program:PATH)")
      ->check(check_producer)
      ->capture_default_str();
  verb->add_option("--ranks", options.ranks, "Where the ranks of the gpu producer are: threads of this process, processes, or started by torchrun, mpirun or srun")
      ->check(OneOf({"threads", "processes", "launcher"}))
      ->capture_default_str();
  add_deadline(verb, options);
  add_driver(verb, options);
  verb->add_option("--streams", options.streams, "Streams of a real framework on a CPU: virtual ones, whose accesses to memory must be ordered by waits")
      ->check(OneOf({"virtual"}));
}

void add_real_producer(CLI::App* verb, Options& options) {
  verb->add_option("--producer", options.producer, "host, or a real framework: deepspeed, ddp, python:MODULE:FACTORY or program:PATH")
      ->check(check_producer)
      ->check([](const std::string& text) { return text == "gpu" ? std::string("gpu does not explore; expected host, or a real framework") : std::string(); })
      ->capture_default_str();
  add_deadline(verb, options);
  add_driver(verb, options);
}

void add_results(CLI::App* verb, Options& options, std::initializer_list<const char*> not_with) {
  std::vector<CLI::Option*> added;
  for (const report::ResultFormat& format : report::result_formats())
    added.push_back(verb->add_option("--" + std::string(format.name), options.result_files[std::string(format.name)],
                                     "File for " + std::string(format.what) + "; - is standard output, in place of the text"));
  added.push_back(
      verb->add_flag("--github", options.github, "Annotations for GitHub's runner on standard output, and a summary of the step in the file that GITHUB_STEP_SUMMARY names"));
  for (CLI::Option* option : added)
    for (const char* other : not_with) option->excludes(verb->get_option(other));
}

void add_executor(CLI::App* verb, Options& options, std::initializer_list<const char*> not_with) {
  CLI::Option* option = verb->add_option("--executor", options.executor,
                                         "Which runs judge: symbolic, one exact run on sums of contributions, for weights alone; numeric, runs on numbers; auto, the symbolic one "
                                         "for weights and runs on numbers for the rest, where these fit --memory-limit");
  option->check(OneOf({"auto", "symbolic", "numeric"}))->capture_default_str();
  for (const char* other : not_with) option->excludes(verb->get_option(other));
}

void add_common(CLI::App* verb, Options& options, const char* json_of) {
  add_run(verb, options, json_of);
  add_producer(verb, options);
}

}  // namespace gradledger::tool
