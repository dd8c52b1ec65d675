// A producer whose ranks are processes of a real framework: each run sets the framework up anew, plays the script, and hands over what the
// ranks show, in the order of events and ranks, whatever the order in which it came.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim/producers/driver/messages.h"
#include "sim/producers/driver/ranks.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"
#include "sim/trace/producer.h"

namespace gradledger::driver {

// There is no run to judge: the framework does not take the configuration, or the driver cannot do what the script asks for.
class NotRun : public std::runtime_error {
 public:
  NotRun(bool by_driver, const std::string& what) : std::runtime_error(what), by_driver_(by_driver) {}
  bool by_driver() const { return by_driver_; }  // false: the framework's own refusal

 private:
  bool by_driver_ = false;
};

class DriverProducer final : public Producer {
 public:
  // Preconditions: those of make_producer(); the ranks outlive it. Errors leave run() as DriverFailure and NotRun.
  DriverProducer(const Scenario& scenario, const Timeline& timeline, DriverRanks& ranks, std::uint64_t seed = 0);

  std::string_view name() const override { return name_; }
  Capabilities capabilities() const override;
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override;

  // What the driver replaced by something like it, in its words, of the last run; and how much of its streams was looked at, in whichever run it was.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void require_what_the_driver_can() const;

  const Scenario& scenario_;
  const Timeline& timeline_;
  DriverRanks& ranks_;
  std::uint64_t seed_;
  std::string name_;
  std::uint64_t runs_ = 0;
  std::vector<std::string> notes_;
  std::string streams_note_;
};

}  // namespace gradledger::driver
