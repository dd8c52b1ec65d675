// Ranks of a real framework, each in a process of its own, as a run sees them: messages go to them and come from them. docs/driver-protocol.md
// has the messages. What carries them, starts the processes and watches the clock is behind this interface (drivers/sessions).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/trace/producer.h"

namespace gradledger::driver {

// The run cannot go on, for reasons that are not the framework's arithmetic: a process ended, was silent, or said what nobody understands.
class DriverFailure final : public RunFailure {
 public:
  using RunFailure::RunFailure;
};

enum class Channel : std::uint8_t { events, group };

struct Incoming {
  std::uint32_t rank = 0;
  Channel channel = Channel::events;
  nlohmann::json message;
};

// What the driver says of itself.
struct DriverHello {
  std::string driver;
  std::map<std::string, std::string> versions;  // of packages
  std::set<std::string> events, frameworks;
  bool applied_gradients = false, accumulators = false, weights = false;
  bool streams = false;         // it tells what each rank does on its streams
  bool experts = false;         // parameters of experts may be on some of its ranks
  bool pipelines = false;       // parameters may live on the ranks of one stage alone
  bool hooked_outputs = false;  // a model may have several outputs, and terms of the loss go around them
  bool sums_losses = false;     // one backward may be of the losses of several forwards
};

class DriverRanks {
 public:
  virtual ~DriverRanks() = default;

  // Starts the host where it does not run yet.
  virtual const DriverHello& hello() = 0;
  // So many ranks are there and answer. fresh: none of the run before, which left them in the middle of something.
  virtual void provide(std::uint32_t world_size, bool fresh) = 0;

  virtual void send(std::uint32_t rank, Channel channel, const nlohmann::json& message) = 0;
  // What has come; nothing where nothing is there yet.
  virtual std::optional<Incoming> poll() = 0;
  // Waits. Throws DriverFailure where nothing comes in time: the fault is one of `owing`, ranks that have yet to answer.
  virtual Incoming next(std::span<const std::uint32_t> owing) = 0;

  // Before a run, whoever makes it: whether the one before left them in the middle of something, with answers still to come. From here on it counts as such
  // until it is said to have come to its end.
  bool begin_run() { return std::exchange(broken_off_, true); }
  void end_run() { broken_off_ = false; }

 private:
  bool broken_off_ = false;
};

}  // namespace gradledger::driver
