// A quick look at a case: one run with integer probes, held to the books exactly. What looks wrong goes before the whole oracle; what does
// not is nearly always clean.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ref/due.h"
#include "ref/oracle.h"
#include "sim/frameworks/framework.h"
#include "sim/producers/producers.h"
#include "sim/scenario/timeline.h"

namespace gradledger::search {

struct Look {
  bool suspicious = false;
  std::uint64_t alike = 0;  // equal for cases that look the same: engine, kind of event, role and mark of the first thing wrong
  std::uint64_t trace_hash = 0;
  std::uint64_t operations = 0;
  std::uint64_t compared = 0;  // elements
};

// Where a look at the first events of a script ended, every rank and stream at its end. It begins where there is none.
struct Stand {
  std::vector<Rank> ranks;
  ref::DueTracker::Seen seen;
  std::uint32_t events = 0;
};

struct LookOptions {
  std::uint64_t seed = 0;
  EngineFactory factory;       // empty: those of the scenario's framework
  Devices* devices = nullptr;  // that compute; not owned
  bool check_streams = true;
  bool every_event = true;                       // every accumulator after every event; false: what steps apply
  std::optional<ref::ProbeRange> range;          // of the probes, where it is not the case's own
  std::uint32_t window_period = 0;               // probes repeat after so many windows; 0: never
  std::function<void(const Simulation&)> after;  // the run
  Stand* stand = nullptr;                        // where the run goes on, and what it leaves there; not owned
};

// Preconditions: the scenario was admitted, the timeline is its own.
Look look_at(const Scenario& scenario, const Timeline& timeline, const LookOptions& options);

// Decisions that probes cannot reach: clipping, overflow, rounding on the way, the optimizer's arithmetic.
bool decides_on_values(const Scenario& scenario, const Contract& contract);

}  // namespace gradledger::search
