// gradledger: replay scenarios, gate a corpus, list what is known.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "sim/base/contract.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/verbs.h"

namespace gradledger::tool {

void complain(const InputError& error) { fmt::print(stderr, "gradledger: {}\n", error.text()); }

std::optional<int> unavailable_producer(const Options& options) {
  if (options.producer == "host") return std::nullopt;
  complain({"--producer", "\"" + options.producer + "\" is not available in this build; expected host"});
  return unavailable;
}

namespace {

void add_common(CLI::App* verb, Options& options) {
  verb->add_option("--seed", options.seed, "Seed of the schedule, the probes and the random data")->capture_default_str();
  verb->add_flag("--json", options.json, "One JSON object a scenario instead of text");
  verb->add_option("--producer", options.producer, "Who runs the program")->check(CLI::IsMember({"host", "gpu"}))->capture_default_str();
  verb->add_option("--memory-limit", options.memory_limit, "Bytes that a judgement may need")->transform(CLI::AsSizeValue(false))->capture_default_str();
}

int run(int argc, char** argv) {
  CLI::App app{"Replays gradient accumulation on virtual ranks and says which contribution is missing, doubled, stale or private."};
  app.require_subcommand(1);
  std::string footer = "Exit codes:\n";
  for (const ExitCodeInfo& e : exit_codes) footer += fmt::format("  {}  {}\n", static_cast<int>(e.code), e.meaning);
  app.footer(footer);

  Options options;
  options.colour = isatty(STDOUT_FILENO) != 0;
  std::vector<std::string> paths;
  std::string what;

  CLI::App* replay_verb = app.add_subcommand("replay", "Run scenarios and judge every rank's accumulators after every event");
  replay_verb->add_option("FILE", paths, "Scenario files")->required();
  add_common(replay_verb, options);
  replay_verb->add_option("--trace", options.trace, "Write every record of the primary pass to this file, as JSON lines");
  replay_verb->add_option("--schedule", options.schedule, "seeded, round-robin, or a trace file whose decisions are replayed")->capture_default_str();
  replay_verb->add_flag("--ledger", options.full_ledger, "Decode the ledger of every step, also where it balances");
  replay_verb->add_flag("--summary", options.summary, "No line for each event and rank");

  CLI::App* gate_verb = app.add_subcommand("gate", "Hold scenarios against what they expect");
  gate_verb->add_option("PATH", paths, "Scenario files, or folders of them")->required();
  add_common(gate_verb, options);

  CLI::App* list_verb = app.add_subcommand("list", "What gradledger knows");
  list_verb->add_option("WHAT", what, "engines, behaviours, findings, releases, buffers or exit-codes")
      ->required()
      ->check(CLI::IsMember({"engines", "behaviours", "findings", "releases", "buffers", "exit-codes"}));
  list_verb->add_flag("--json", options.json, "JSON instead of text");

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    complain({"", error.what() + std::string("; see gradledger --help")});
    return bad_input;
  }
  if (*replay_verb) return replay(paths, options);
  if (*gate_verb) return gate(paths, options);
  return list(what, options);
}

}  // namespace
}  // namespace gradledger::tool

int main(int argc, char** argv) {
  using namespace gradledger::tool;
  try {
    const int code = run(argc, argv);
    if (std::fflush(stdout) == 0) return code;
    fmt::print(stderr, "gradledger: the report cannot be written to standard output\n");
    return std::max<int>(code, bad_input);
  } catch (const std::system_error& error) {
    fmt::print(stderr, "gradledger: {}\n", error.what());
    return bad_input;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "gradledger: out of memory; see --memory-limit\n");
    return unavailable;
  } catch (const std::exception& error) {
    fmt::print(stderr, "gradledger: internal error: {}\nPlease report it with the command line and the scenario.\n", error.what());
    return internal_error;
  }
}
