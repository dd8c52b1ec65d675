// A state of a framework's code, as far as work that looks at its switches goes: where two states have the same values in all that was read, the work comes to
// the same in both.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "sim/frameworks/framework.h"
#include "sim/frameworks/history.h"
#include "sim/frameworks/watched_switch.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

struct CodeState {
  AsOf as_of;
  std::optional<std::vector<std::uint8_t>> switches;  // none: the framework has no history, or none of this state, and nothing is known of another one
};

inline CodeState code_state_of(const Scenario& scenario) {
  const AsOf& as_of = scenario.engine.as_of;
  const History* history = framework_of(scenario).history();
  return {as_of, history ? history->values_of(as_of) : std::nullopt};
}

// reads: of work done in the one or the other.
inline bool same_for(const SwitchReads& reads, const CodeState& one, const CodeState& other) {
  if (one.switches && other.switches) return reads.agree(*one.switches, *other.switches);
  return one.as_of == other.as_of;
}

// What one piece of work came to, by states of the code; each outcome once for all states for which it is the same.
template <class Outcome>
class KnownStates {
 public:
  // References stay valid. work: () -> Outcome, and all that it looks at of the framework is read within.
  template <class Work>
  const Outcome& of(const CodeState& state, Work&& work) {
    for (const Known& known : known_)
      if (same_for(known.reads, known.state, state)) {
        SwitchRecorder::note(known.reads);
        return known.outcome;
      }
    const SwitchRecorder recorder;
    Outcome outcome = work();
    return known_.emplace_back(Known{state, recorder.reads(), std::move(outcome)}).outcome;
  }

 private:
  struct Known {
    CodeState state;
    SwitchReads reads;
    Outcome outcome;
  };
  std::list<Known> known_;
};

}  // namespace gradledger
