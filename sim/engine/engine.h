// An engine is a framework's host code for one rank: script events in, operations out. It computes nothing on gradients.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/result.h"
#include "sim/engine/buffers.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"

namespace gradledger {

class StateFold;

// What the modelled framework raises. Ends the rank's script; never leaves the simulator as an exception.
struct FrameworkError {
  std::string type;  // Python's class name: "AssertionError"
  std::string message;
};

struct EngineContext {
  const Scenario* scenario = nullptr;
  const Timeline* timeline = nullptr;
  std::uint32_t rank = 0;
  bool linear = false;  // no decision may depend on a value: see RunOptions::linear
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::unique_ptr<Engine> clone() const = 0;

  virtual void initialise(ProgramWriter& w) = 0;
  // Reacts to one event that runs on this rank. May raise FrameworkError, or suspend on a read.
  virtual void handle(const Event& event, ProgramWriter& w) = 0;
  // Whether the last call emitted a read whose value it needs before it can go on.
  virtual bool suspended() const = 0;
  virtual void resume(double value, ProgramWriter& w) = 0;
  // Snapshots of every live accumulator, after an event.
  virtual void observe(ProgramWriter& w) = 0;
  // What a checkpoint holds of the host's state: taken from the engine of the process before. Weights and moments are not its concern.
  virtual void load(const Engine& saved);
  // Whether it brings back buffers of this purpose: weights, master weights or moments. May raise FrameworkError.
  virtual bool restores(BufferPurpose /*purpose*/) const { return true; }
  // What of its state decides the rest of the script, between two events. Needed where states are told apart (search/sequences/explore.h).
  virtual void fold(StateFold& f) const;
};

struct EngineInfo {
  std::string_view name;         // the framework's class
  std::string_view serves;       // which configurations
  std::string_view accumulates;  // where and in what
  std::string_view evidence;     // "recorded": runs of the real one are replayed; "read": its source was read, and none was recorded
};

// Makes the engine of one rank: of a framework (sim/frameworks/framework.h), or a stand-in.
using EngineFactory = std::function<std::unique_ptr<Engine>(const EngineContext&)>;

}  // namespace gradledger
