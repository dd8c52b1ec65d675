#include "tools/gradledger/search_options.h"

#include <string>

namespace gradledger::tool {

CLI::App* add_fuzz(CLI::App& app, FuzzOptions& fuzz) {
  CLI::App* verb = app.add_subcommand("fuzz", "Draw scenarios, judge them, and make each finding as small as it gets");
  const auto number = CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40);
  CLI::Option* cases = verb->add_option("--cases", fuzz.cases, "Cases to draw, all shards together; 20000 without --time")->check(number);
  CLI::Option* time = verb->add_option("--time", fuzz.time_s, "Seconds after which no new round of cases begins")->check(CLI::Range(1, 604800));
  verb->add_option("--case", fuzz.only, "Draw this one case alone, by its number")->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 40))->excludes(cases)->excludes(time);
  verb->add_option("--engine", fuzz.engines, "Engines to draw: zero0, zero1, zero1-offload, bf16-optimizer, zero2, zero2-offload, zero3, zero3-offload; default: all");
  verb->add_option("--as-of", fuzz.as_of, "Release or change that the engines are of")->capture_default_str();
  verb->add_option("--switch", fuzz.switches, "name=value: a behaviour switch on top of it");
  verb->add_option("--shard", fuzz.shard, "i/n: of n campaigns that share the cases, the one with number i")->capture_default_str();
  verb->add_option("--jobs", fuzz.jobs, "Threads; what is found does not depend on them")->check(CLI::Range(1, 1024))->capture_default_str();
  verb->add_option("--findings", fuzz.findings, "Folder that findings are written to, and whose files are replayed first")->capture_default_str();
  verb->add_flag("--documented", fuzz.documented, "Only scripts in which a correct framework loses nothing");
  CLI::Option* differ = verb->add_option("--differ", fuzz.differ, "Releases, changes, engines or producers, comma-separated: find scripts on which they apply different gradients");
  verb->add_option("--catalogue", fuzz.catalogue, "Folder of scenarios: how many cases each of its known defects takes to be found from nothing")->excludes(differ);
  return verb;
}

}  // namespace gradledger::tool
