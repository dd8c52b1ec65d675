// What a stage of a pipeline sends to its neighbours and waits for, as far as that decides who goes on: where a stage raises or stands still, those that want
// its activations or gradients stand still too. Nothing is held of what is sent; a stage's gradients are what the scenario says.
#pragma once

#include <cstdint>

#include "sim/program/program.h"
#include "sim/scenario/rank_list.h"

namespace gradledger {

// Of one rank. Its neighbours are ranks of the same pipeline, which closes to a ring where a stage has several chunks of the model.
class PipelineNeighbours {
 public:
  PipelineNeighbours() = default;  // of one stage
  // stages: a rank of each, in order. Precondition: the rank is one of them.
  PipelineNeighbours(const RankList& stages, std::uint32_t rank) : stages_(stages.size()), stage_(stages.place_of(rank).value()) {
    const auto places_to = [&](std::uint32_t stage) { return static_cast<std::int32_t>(stages[stage % stages_] - rank); };
    to_next_ = places_to(stage_ + 1);
    to_previous_ = places_to(stage_ + stages_ - 1);
  }

  // Of chunk c of so many that each stage has: the model's layers go through the stages chunk by chunk.
  void receive_activations(std::uint32_t chunk, ProgramWriter& w) const {
    if (!at_start(chunk)) w.receive(to_previous_, activations);
  }
  void send_activations(std::uint32_t chunk, std::uint32_t chunks, ProgramWriter& w) const {
    if (!at_end(chunk, chunks)) w.send(to_next_, activations);
  }
  void receive_gradients(std::uint32_t chunk, std::uint32_t chunks, ProgramWriter& w) const {
    if (!at_end(chunk, chunks)) w.receive(to_next_, gradients);
  }
  void send_gradients(std::uint32_t chunk, ProgramWriter& w) const {
    if (!at_start(chunk)) w.send(to_previous_, gradients);
  }

 private:
  static constexpr std::uint8_t activations = 0, gradients = 1;  // lines

  bool at_start(std::uint32_t chunk) const { return stages_ == 1 || (stage_ == 0 && chunk == 0); }
  bool at_end(std::uint32_t chunk, std::uint32_t chunks) const { return stages_ == 1 || (stage_ + 1 == stages_ && chunk + 1 == chunks); }

  std::uint32_t stages_ = 1, stage_ = 0;
  std::int32_t to_next_ = 0, to_previous_ = 0;
};

}  // namespace gradledger
