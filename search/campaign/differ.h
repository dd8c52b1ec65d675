// Two behaviours, engines or producers on the same script: where they apply different gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "ref/probes.h"
#include "search/campaign/campaign.h"
#include "sim/frameworks/framework.h"

namespace gradledger::search {

// One of the things that are compared: what it makes of a drawn case.
struct Side {
  std::string name;  // as the user gave it
  std::function<void(Scenario&)> apply;
  EngineFactory factory;       // empty: those of the scenario's framework
  Devices* devices = nullptr;  // not owned
};

// What a run applied, in units of the true gradient, by event, parameter and element: every value that some rank applied there, sorted. Where sides
// have scripts of their own the step's number stands for the event.
struct Applied {
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::vector<double>> values;
  std::string stopped;  // "rank 0 raises KeyError at event 3", "deadlock"; empty: the script ran to its end
};

// The first thing in which two sides differ.
struct Parting {
  std::size_t one = 0, other = 0;  // sides, by number
  std::uint32_t event = 0, parameter = 0, element = 0;
  bool by_step = false;  // event is the number of a step
  bool stops = false;    // one of them did not run to its end
  std::string text;
};

// Nothing where they agree, or where the case cannot tell: an engine does not serve it, or its sums are not exact.
struct Comparison {
  bool compared = false;
  std::optional<Parting> parting;
};
Comparison compare_sides(const Scenario& scenario, const std::vector<Side>& sides, std::uint64_t seed);

// One finding of a differential campaign.
struct DifferFound {
  std::uint64_t number = 0;
  std::uint64_t alike = 1;
  Scenario scenario;  // smallest, without any side applied
  Parting parting;
  std::string shape, explanation;
};

struct DifferState {
  std::uint64_t cases = 0, compared = 0, differing = 0;
  std::vector<DifferFound> found;
  bool stopped = false;  // with cases left
};

// Who wants to know before the end.
struct DifferWatch {
  std::function<void(const DifferFound&)> found = [](const DifferFound&) {};     // unlike all before, as it is found
  std::function<void(const DifferState&)> progress = [](const DifferState&) {};  // after each round
};

// Precondition: at least two sides. Cases, seed, shard, jobs and stop as in a campaign.
DifferState run_differ(const CampaignOptions& options, const std::vector<Side>& sides, const DifferWatch& watch = {});

}  // namespace gradledger::search
