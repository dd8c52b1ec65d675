// A catalogue of faults, each small and of a kind that frameworks have had. A gate plants them one by one; the oracle must report every one.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "ref/finding.h"
#include "search/mutants/tape.h"
#include "sim/base/result.h"
#include "sim/frameworks/framework.h"

namespace gradledger::search {

// Events on their way to the engine. What is held back reaches it with a later event, or never.
struct Told {
  std::vector<Event> now;   // in this order, instead of the event
  std::vector<Event> held;  // kept between events
};

// What goes wrong. No engine knows of it: it sits around one, and whatever it leaves empty is right.
struct Fault {
  std::function<void(Tape&, const Moment&)> edit;                // of what a call wrote
  std::function<void(Told&, const Event&, const Moment&)> tell;  // what the engine hears of an event
  std::function<void(Scenario&, EngineContext&)> believe;        // what it takes the run for
  std::function<double(double, const Moment&)> value;            // what it reads where it waits for a value
};

struct Mutant {
  std::string_view name;
  std::string_view what;                   // goes wrong, in one sentence
  std::vector<ref::FindingClass> classes;  // any of them names it fittingly
  std::vector<std::string_view> variants;  // that have what it breaks (search/draw/variants.h)
  Fault fault;
  void (*require)(Scenario&) = nullptr;  // makes a drawn case one in which the fault is reached
};

std::span<const Mutant> mutants();

// Errors name the nearest mutant, if one is near.
Result<const Mutant*> mutant_named(std::string_view name, std::string_view where);

// Engines with the fault. The mutant outlives them.
EngineFactory with_fault(const Fault& fault);
inline EngineFactory with_fault(const Mutant& mutant) { return with_fault(mutant.fault); }

}  // namespace gradledger::search
