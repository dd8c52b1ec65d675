#include "sim/producers/producers.h"

#include "sim/execution/host_executor.h"

namespace gradledger {

std::unique_ptr<Simulation> make_producer(const Scenario& scenario, const Timeline& timeline, const ProducerOptions& options) {
  auto producer = std::make_unique<HostExecutor>(scenario, timeline, options.arithmetic, options.engines);
  producer->limit_programs(options.program_bytes_max);
  producer->divide_by(options.division);
  if (options.devices) producer->run_on(*options.devices);
  return producer;
}

}  // namespace gradledger
