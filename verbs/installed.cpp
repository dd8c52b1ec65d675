#include "verbs/installed.h"

#include <fmt/format.h>

#include "sim/frameworks/framework.h"
#include "sim/producers/driver/driver_producer.h"

namespace gradledger::verbs {

Result<Scenario> as_installed(Scenario scenario, const driver::DriverHello& hello) {
  if (!hello.frameworks.contains(scenario.engine.framework))
    throw driver::NotRun(true, fmt::format("the scenario is of {}, and driver {} does not serve it", scenario.engine.framework, hello.driver));
  if (!scenario.engine.as_of.switches.empty()) throw driver::NotRun(true, "/engine/as_of sets switches by hand, which no release that is installed can have");
  const Framework& framework = framework_of(scenario);
  if (auto installed = framework.installed(hello.versions)) scenario.engine.as_of = std::move(*installed);
  if (auto problem = framework.as_of_problem(scenario.engine.as_of)) return *problem;
  // What is sent and held is counted by purposes that the model alone knows.
  scenario.expect.collectives.clear();
  scenario.expect.memory.clear();
  scenario.expect.not_allocated.clear();
  scenario.expect.values.clear();
  return scenario;
}

std::string releases_of(const driver::DriverHello& hello) {
  std::string out;
  for (const auto& [package, release] : hello.versions) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", package, release);
  return out;
}

std::string producer_text(const Options& options) {
  const std::string releases = options.driver ? releases_of(options.driver->hello()) : "";
  return releases.empty() ? options.producer : options.producer + " (" + releases + ")";
}

}  // namespace gradledger::verbs
