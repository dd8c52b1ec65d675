#include "tools/gradledger/gate_options.h"

#include "tools/gradledger/numbers.h"
#include "verbs/baseline.h"

namespace gradledger::tool {
namespace {

std::string date(const std::string& text) { return verbs::is_date(text) ? "" : "\"" + text + "\" is no date; expected one as 2027-01-31"; }

}  // namespace

void add_gate_options(CLI::App* gate, Options& options, GateVerb& verb) {
  gate->add_option("--jobs", options.jobs, "Threads; the report does not depend on them")->check(whole_number)->check(CLI::Range(1, 1024))->capture_default_str();
  const auto scenarios_alone = [&](CLI::Option* option) { return option->excludes(gate->get_option("--mutants")); };
  scenarios_alone(gate->add_option("-k", verb.only, "Only scenarios of whose path or name this holds: words with and, or, not and parentheses"))->check(some_text);
  scenarios_alone(gate->add_flag("-x", verb.first_failure, "End after the first scenario that fails"));
  scenarios_alone(gate->add_flag("--last-failed", verb.last_failed, "Only scenarios that failed when this was given last; all where none did"));
  gate->add_option("--state", verb.state, "File that --last-failed remembers them in")->check(some_text)->needs("--last-failed")->capture_default_str();
  scenarios_alone(gate->add_option("--durations", verb.durations, "Tell the N scenarios that took longest, on standard error"))->check(whole_number)->check(CLI::Range(0, 100000));
  scenarios_alone(gate->add_option("--shard", verb.shard, "i/n: of n gates that share the scenarios, the one with number i; auto: as the launcher of the processes says"))
      ->capture_default_str();
  scenarios_alone(gate->add_option("--time-budget", verb.budget_s, "Seconds after which no scenario begins; one that is left fails the gate"))
      ->check(whole_number)
      ->check(CLI::Range(1, 604800));
  CLI::Option* baseline = scenarios_alone(gate->add_option("--baseline", verb.baseline, "File of findings that are accepted until a day"))->check(some_text);
  gate->add_option("--today", verb.today, "The day that these are held against, as 2027-01-31; default: the system's")->check(date)->needs(baseline);
  CLI::Option* update = scenarios_alone(gate->add_flag("--update", verb.update, "Write the findings that are reported into the files that expect others"));
  for (const char* other : {"-x", "--baseline", "--compare", "--producer", "--as-of", "--config"}) update->excludes(gate->get_option(other));
  baseline->excludes(gate->get_option("--compare"));
  scenarios_alone(gate->add_flag("--allow-left-out", verb.allow_left_out, "What may be meant to be a scenario of a folder, and was left out, is told and does not fail the gate"));
}

}  // namespace gradledger::tool
