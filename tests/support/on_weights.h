// A scenario run on weights, for a sink that looks at what it wants.
#pragma once

#include <nlohmann/json.hpp>

#include "sim/load.h"
#include "sim/producers/producers.h"
#include "sim/scenario/parse.h"
#include "tests/support/no_gradients.h"

namespace gradledger::testing {

// Precondition: the document is a scenario that is admitted.
inline void run_on_weights(const nlohmann::json& document, TraceSink& sink) {
  const Scenario scenario = read_scenario(document.dump(), ".").value();
  const Timeline timeline = make_timeline(scenario).value();
  RunOptions options;
  options.linear = options.weights = true;
  make_producer(scenario, timeline)->run(NoGradients(), options, sink);
}

}  // namespace gradledger::testing
