#include <chrono>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "search/streams/stream_orders.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/explore.h"
#include "tools/gradledger/verbs.h"
#include "report/version/version.h"

namespace gradledger::tool {
namespace {

using nlohmann::ordered_json;
using search::StreamAgreement;

// "0:compute 0:communication 1:compute": rank and stream of each step.
std::string decisions_text(const std::vector<search::StreamDecision>& decisions) {
  std::string out;
  for (const search::StreamDecision& d : decisions) out += fmt::format("{}{}:{}", out.empty() ? "" : " ", d.rank, name_of(d.stream));
  return out;
}

ordered_json json_of(const search::StreamOrders& o, const Loaded& loaded, double seconds) {
  ordered_json races = ordered_json::array(), outcomes = ordered_json::array();
  for (const RaceRecord& r : o.races)
    races.push_back({{"rank", r.rank}, {"buffer", r.buffer}, {"begin", r.begin}, {"end", r.end}, {"first", r.first.operation}, {"second", r.second.operation}});
  for (const search::StreamWitness& w : o.witnesses)
    outcomes.push_back({{"values", fmt::format("{:016x}", w.outcome.values)}, {"memory", fmt::format("{:016x}", w.outcome.memory)}, {"order", decisions_text(w.decisions)}});
  return {{"record", "streams"}, {"schema_version", 1}, {"tool", tool_json()}, {"scenario", loaded.scenario.name}, {"complete", o.complete}, {"every_choice", o.every_choice},
          {"states", o.states}, {"transitions", o.transitions},
          {"rank_states", o.rank_states}, {"depth", o.depth}, {"left_out", o.left_out}, {"deadlock", o.deadlock}, {"mismatch", o.mismatch}, {"outcomes", o.outcomes},
          {"outcomes_in_values", o.outcomes_in_values}, {"races", races}, {"witnesses", outcomes}, {"agreement", name_of(o.agreement)}, {"seconds", seconds}};
}

void print(const search::StreamOrders& o, const Loaded& loaded, const std::string& command, double seconds) {
  fmt::print("# {}\n", command);
  fmt::print("{}: {}; {} states, {} transitions, {} states of single ranks, depth {} ({:.1f} s)\n", loaded.scenario.name,
             o.complete ? "complete: every order" : o.every_choice ? "NOT complete: every choice, but not from all values" : "NOT complete", o.states, o.transitions, o.rank_states, o.depth, seconds);
  if (o.mismatch) fmt::print("  ranks meet with different calls: nothing was searched\n");
  if (o.deadlock) fmt::print("  every order ends in a deadlock\n");
  fmt::print("  {} outcome{} in memory, {} in values; {} race{} by happens-before: {}\n", o.outcomes, o.outcomes == 1 ? "" : "s", o.outcomes_in_values, o.races.size(), o.races.size() == 1 ? "" : "s",
             name_of(o.agreement));
  for (const RaceRecord& r : o.races) fmt::print("  race: rank {}, {}[{}:{}]: {} and {}\n", r.rank, r.buffer, r.begin, r.end, r.first.operation, r.second.operation);
}

}  // namespace

int explore_streams_of(const Options& options, const ExploreVerb& verb) {
  const auto loaded = load(verb.file, options);
  if (!loaded) {
    complain(loaded.error());
    return loaded.error().unavailable ? unavailable : bad_input;
  }
  search::StreamOrderOptions how;
  how.seed = options.seed;
  how.states_max = verb.states_max;
  how.program_bytes_max = program_bytes_max(**loaded, options);
  const auto start = std::chrono::steady_clock::now();
  try {
    const search::StreamOrders orders = search::explore_streams((*loaded)->scenario, (*loaded)->timeline, how);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (options.json) fmt::print("{}\n", json_of(orders, **loaded, seconds).dump(-1, ' ', false, ordered_json::error_handler_t::replace));
    if (!options.json) print(orders, **loaded, repeat_command(options, verb), seconds);
    return orders.complete && orders.races.empty() && orders.agreement == StreamAgreement::agree ? clean : findings;
  } catch (const ProgramsTooLarge&) {
    complain(programs_too_large(**loaded, options));
    return unavailable;
  }
}

}  // namespace gradledger::tool
