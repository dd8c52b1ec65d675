#include <fmt/format.h>

#include "search/streams/stream_orders.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/explore.h"
#include "tools/gradledger/interruption.h"
#include "tools/gradledger/output.h"
#include "tools/gradledger/progress.h"
#include "tools/gradledger/verbs.h"

namespace gradledger::tool {
namespace {

using search::StreamAgreement;

// "0:compute 0:communication 1:compute": rank and stream of each step.
std::string decisions_text(const std::vector<search::StreamDecision>& decisions) {
  std::string out;
  for (const search::StreamDecision& d : decisions) out += fmt::format("{}{}:{}", out.empty() ? "" : " ", d.rank, name_of(d.stream));
  return out;
}

report::OrdersReport report_of(const search::StreamOrders& o, const Loaded& loaded, double seconds) {
  report::OrdersReport out;
  out.scenario = loaded.scenario.name;
  out.agreement = std::string(name_of(o.agreement));
  out.complete = o.complete;
  out.every_choice = o.every_choice;
  out.deadlock = o.deadlock;
  out.mismatch = o.mismatch;
  out.receives_pass = o.receives_pass;
  out.states = o.states;
  out.transitions = o.transitions;
  out.rank_states = o.rank_states;
  out.depth = o.depth;
  out.left_out = o.left_out;
  out.outcomes = o.outcomes;
  out.outcomes_in_values = o.outcomes_in_values;
  out.races = o.races;
  for (const search::StreamWitness& w : o.witnesses) out.witnesses.push_back({w.outcome.values, w.outcome.memory, decisions_text(w.decisions)});
  out.seconds = seconds;
  return out;
}

}  // namespace

int explore_streams_of(const Options& options, const ExploreVerb& verb, const Output& out) {
  std::vector<InputError> errors;
  const auto loaded = load(verb.file, options, Use::search, &errors);
  if (!loaded) {
    out.refuse(verb.file, errors);
    return loaded.error().unavailable ? unavailable : bad_input;
  }
  search::StreamOrderOptions how;
  how.seed = options.seed;
  how.states_max = verb.states_max;
  how.program_bytes_max = program_bytes_max(**loaded, options);
  const Interruption interruption;
  Progress progress("exploring the orders of the streams");
  how.stop = [] { return Interruption::signal() != 0; };
  try {
    const search::StreamOrders orders = search::explore_streams((*loaded)->scenario, (*loaded)->timeline, how);
    progress.aside([&] {
      out.head(repeat_command(options, verb));
      out.print(report_of(orders, **loaded, progress.seconds()));
    });
    return Interruption::exit_code_or(orders.complete && orders.races.empty() && orders.agreement == StreamAgreement::agree ? clean : findings);
  } catch (const ProgramsTooLarge&) {
    complain(programs_too_large(**loaded, options));
    return unavailable;
  }
}

}  // namespace gradledger::tool
