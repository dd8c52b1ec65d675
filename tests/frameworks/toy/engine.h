// The toy's host code for one rank.
#pragma once

#include <vector>

#include "sim/engine/base_optimizer.h"
#include "sim/engine/engine.h"
#include "sim/engine/tensors.h"

namespace gradledger::toy {

// What flush() is told.
struct Flush {
  bool divides_first = false;  // before the all-reduce, not behind it

  std::string json_text() const { return divides_first ? R"({"divide": "first"})" : "{}"; }
  bool operator==(const Flush&) const = default;
};

class ToyEngine final : public Engine {
 public:
  explicit ToyEngine(const EngineContext& context);
  std::unique_ptr<Engine> clone() const override { return std::make_unique<ToyEngine>(*this); }

  void initialise(ProgramWriter& w) override;
  void handle(const Event& event, ProgramWriter& w) override;
  bool suspended() const override { return false; }
  void resume(double, ProgramWriter&) override {}
  void observe(ProgramWriter& w) override;

 private:
  void backward(const events::Backward& event, ProgramWriter& w);
  void flush(const Flush& how, ProgramWriter& w);
  void step(ProgramWriter& w);
  const Scenario& scenario() const { return *context_.scenario; }
  std::uint32_t parameter_count() const { return static_cast<std::uint32_t>(scenario().parameters.size()); }

  EngineContext context_;
  TensorTable tensors_;
  std::vector<Slice> weights_;  // by parameter, as the three that follow
  std::vector<Tensor> own_, averaged_;
  std::vector<BaseOptimizer> optimizers_;
  bool stepped_ = false;
};

}  // namespace gradledger::toy
