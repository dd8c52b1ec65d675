#include "sim/producers/driver/driver_producer.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/producers/driver/driver_run.h"

namespace gradledger::driver {

DriverProducer::DriverProducer(const Scenario& scenario, const Timeline& timeline, DriverRanks& ranks, std::uint64_t seed)
    : scenario_(scenario), timeline_(timeline), ranks_(ranks), seed_(seed), name_(ranks.hello().driver) {}

Capabilities DriverProducer::capabilities() const {
  const DriverHello& hello = ranks_.hello();
  return {.applied_gradients = hello.applied_gradients, .accumulators = hello.accumulators, .few_runs = true};
}

void DriverProducer::require_what_the_driver_can() const {
  const DriverHello& hello = ranks_.hello();
  if (!hello.frameworks.contains(scenario_.engine.framework))
    throw NotRun(true, fmt::format("driver {} serves {}, and the scenario is of {}", hello.driver, fmt::join(hello.frameworks, ", "), scenario_.engine.framework));
  // Stages and most experts are of layouts that a driver does not make, and streams of a device that may not be there.
  for (std::uint32_t p = 0; p < scenario_.parameters.size(); ++p) {
    const Parameter& parameter = scenario_.parameters[p];
    const char* asks = parameter.expert && !hello.experts                       ? "expert"
                       : parameter.on_side_stream && !hello.streams             ? "produced_on"
                       : parameter.hooked_outputs != 1 && !hello.hooked_outputs ? "hooked_outputs"
                       : parameter.pipeline_stage > 0 && !hello.pipelines       ? "pipeline_stage"
                                                                                : "";
    if (*asks) throw NotRun(true, fmt::format("driver {} has nothing for /parameters/{}/{}", hello.driver, p, asks));
  }
  for (std::uint32_t e = 0; e < timeline_.events.size(); ++e) {
    const std::string& item = timeline_.pointers[timeline_.events[e].item];
    if (const std::string event = event_name(timeline_.events[e]); !hello.events.contains(event))
      throw NotRun(true, fmt::format("driver {} cannot do {}, which {} asks for", hello.driver, event, item));
    if (const auto* backward = timeline_.events[e].as<events::Backward>(); backward && backward->summed != 1 && !hello.sums_losses)
      throw NotRun(true, fmt::format("driver {} has nothing for {}/backward/sum_of", hello.driver, item));
  }
}

RunSummary DriverProducer::run(const GradientSource& source, const RunOptions& options, TraceSink& sink) {
  expects(!options.wide && !options.dry, "a real framework computes in its own formats");
  require_what_the_driver_can();
  const bool fresh = ranks_.begin_run();  // other scenarios run on them too
  ranks_.provide(scenario_.world_size, fresh);
  DriverRun run(scenario_, timeline_, source, options, ranks_, sink);
  const RunSummary summary = run.go(runs_++, seed_);
  notes_ = run.notes();
  if (!run.streams_note().empty()) streams_note_ = run.streams_note();
  if (!streams_note_.empty()) notes_.push_back(streams_note_);
  if (run.unharmed()) ranks_.end_run();
  return summary;
}

}  // namespace gradledger::driver
