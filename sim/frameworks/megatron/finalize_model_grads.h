// What finalize_model_grads does behind the data-parallel reduction: gradients that other dimensions share, and the division by tokens.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/frameworks/megatron/distributed_data_parallel.h"

namespace gradledger::megatron {

class ModelGradients {
 public:
  explicit ModelGradients(SharedSetup setup) : setup_(std::move(setup)) {}

  void initialise(ProgramWriter& w);  // ours: what the reductions work on

  // The tokens of the window on every rank, where a schedule or a loop counts them.
  void finish(DistributedDataParallel& ddp, const std::optional<std::vector<std::uint64_t>>& tokens, ProgramWriter& w);  // finalize_model_grads.py: finalize_model_grads, at 0.16.1

 private:
  void all_reduce_non_tensor_parallel(DistributedDataParallel& ddp, ProgramWriter& w);  // finalize_model_grads.py: _allreduce_non_tensor_model_parallel_grads, at 0.16.1
  void all_reduce_coalesced(const std::vector<Slice>& grads, ReduceOp op, Slice& flat,
                            ProgramWriter& w);                                // finalize_model_grads.py: _allreduce_non_tensor_model_parallel_grads, at 0.16.1
  void all_reduce_embedding(DistributedDataParallel& ddp, ProgramWriter& w);  // finalize_model_grads.py: _allreduce_word_embedding_grads, at 0.16.1
  void divide_by_tokens(DistributedDataParallel& ddp, const std::vector<std::uint64_t>& tokens, ProgramWriter& w);  // finalize_model_grads.py: finalize_model_grads, at 0.16.1

  SharedSetup setup_;
  Slice num_tokens_, summed_, averaged_;
};

}  // namespace gradledger::megatron
