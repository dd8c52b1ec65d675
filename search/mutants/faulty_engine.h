// An engine with a fault around it: what it hears, believes and writes passes through the fault on its way.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "search/mutants/mutant.h"

namespace gradledger::search {

// The engine within writes a program of its own, which nobody runs. What each call adds to it is edited, then written to the real one.
class FaultyEngine final : public Engine {
 public:
  FaultyEngine(const Fault& fault, const EngineContext& context);
  FaultyEngine(const FaultyEngine& other);

  std::unique_ptr<Engine> clone() const override { return std::make_unique<FaultyEngine>(*this); }
  void initialise(ProgramWriter& w) override;
  void handle(const Event& event, ProgramWriter& w) override;
  bool suspended() const override { return inner_->suspended(); }
  void resume(double value, ProgramWriter& w) override;
  void observe(ProgramWriter& w) override;

 private:
  template <class Call>
  void through(ProgramWriter& w, bool edits, Call&& call);
  void go_on(ProgramWriter& w);
  Moment moment() const;
  void write(const Op& op, const Tape& tape, ProgramWriter& w);
  void declare_new(ProgramWriter& w);

  const Fault* fault_;
  EngineContext context_;
  BufferPurposes purposes_;
  std::shared_ptr<const Scenario> believed_;
  std::unique_ptr<Engine> inner_;
  Program written_;                      // by the engine within
  std::size_t buffers_ = 0, views_ = 0;  // of it that the real program has too, under the same numbers
  std::vector<std::uint32_t> recorded_;  // by stream event of the engine's: the real one
  Told told_;
  std::deque<Event> queue_;  // still to be handled
  Event event_;
  bool started_ = false;
};

}  // namespace gradledger::search
