// A recording as a producer of one pass: what a real run held, played to whoever judges it. It computes nothing and asks no engine.
//
// It is here and not in sim/producers because the readers of recordings are this tool's, and because what a weight may be off by is derived with the
// oracle's facts of formats.
#pragma once

#include <string>
#include <vector>

#include "sim/trace/producer.h"
#include "conformance/judged/layout.h"
#include "conformance/recording.h"

namespace gradledger::conform {

// Shows after each operation the buffers that the recording names, in their roles; of a step what it applied, as weights before less weights after
// (the optimizer is SGD), with what rounding of weights hides of it; that weights changed, the norm, collectives and errors. Says nothing of what is
// not recorded: loss scale, order of streams, memory, the moment within an operation.
class RecordedProducer final : public Producer {
 public:
  // Preconditions: the recording came from express(), has ranks, and the timeline is its scenario's; both outlive the producer.
  RecordedProducer(const Recording& recording, const Timeline& timeline);

  std::string_view name() const override { return "recording"; }
  Capabilities capabilities() const override { return {.one_pass = true}; }
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override;

 private:
  // Of one step: weights of a rank around it, by parameter.
  struct Update {
    std::uint32_t event = 0;
    bool changed = false, skipped = false;
    double loss_scale = 1;  // in force behind it
  };

  void find_updates(const GradientSource& source);
  bool holds_nonfinite(std::uint32_t event) const;
  const std::vector<std::vector<double>>& weights_before(std::uint32_t rank, std::uint32_t event) const;
  double loss_scale(std::uint32_t event) const;

  void show_step(const Update& update, std::uint32_t rank, TraceSink& sink) const;
  bool weights_tell_the_gradient(std::uint32_t rank) const;  // SGD without weight decay
  void show_applied(std::uint32_t event, std::uint32_t rank, TraceSink& sink) const;
  void show_buffers(std::uint32_t event, std::uint32_t rank, TraceSink& sink) const;
  void show_weights(std::uint32_t event, std::uint32_t rank, TraceSink& sink) const;
  void show_collectives(std::uint32_t event, std::uint32_t rank, TraceSink& sink) const;
  // What is recorded of an event on a rank, if anything.
  bool has(std::uint32_t rank, std::uint32_t event) const { return operations_[rank][event] < recording_.ranks[rank].size(); }
  const RecordedMoment& moment(std::uint32_t rank, std::uint32_t event) const { return recording_.ranks[rank][operations_[rank][event]]; }

  const Recording& recording_;
  const Timeline& timeline_;
  RecordedLayout layout_;
  std::vector<std::vector<std::uint32_t>> operations_;  // [rank][event]
  std::vector<std::vector<double>> initial_;            // by parameter
  std::vector<Update> updates_;                         // by event
  std::vector<std::vector<std::uint32_t>> weights_;     // [rank][event]: the last event before it that showed weights; never: none did
};

}  // namespace gradledger::conform
