// A scenario on the framework that is installed, whatever release it was written for.
#pragma once

#include "sim/base/result.h"
#include "sim/producers/driver/ranks.h"
#include "sim/scenario/scenario.h"
#include "verbs/session.h"

namespace gradledger::verbs {

// With /engine/as_of what is installed. Throws driver::NotRun where the scenario asks for what no release is: switches set by hand.
Result<Scenario> as_installed(Scenario scenario, const driver::DriverHello& hello);

// "deepspeed 0.18.9, torch 2.13.0"
std::string releases_of(const driver::DriverHello& hello);

// "host", or a real framework with its releases.
std::string producer_text(const Options& options);

}  // namespace gradledger::verbs
