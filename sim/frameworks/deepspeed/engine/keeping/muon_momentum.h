// The momentum of Muon at stages 1 and 2. A rank keeps that of every matrix that it owns a part of, whole, and advances it as a boundary
// makes averaged_gradients.
#pragma once

#include <vector>

#include "sim/frameworks/deepspeed/engine/keeping/kept_gradients.h"
#include "sim/frameworks/deepspeed/engine/muon.h"

namespace gradledger {

class MuonMomentum {
 public:
  explicit MuonMomentum(const FlatGroups& weights) : momentum_(weights.size()), staged_(weights.size()), taken_(weights.parts().size()) {}

  // gradients: whole, by owned part of all groups.
  void take_in(ProgramWriter& w, const KeepingContext& c, const std::vector<Tensor>& gradients);  // stage_1_and_2.py: get_flat_partition, at 0.19.8
  // A step updates: what was kept back becomes the momentum.
  void commit(ProgramWriter& w);  // stage_1_and_2.py: step, at 0.19.8
  // The gradients that went in, and a momentum that was not committed.
  void let_go(ProgramWriter& w, TensorTable& tensors);  // stage_1_and_2.py: step, at 0.19.8
  // The matrices that went in last: what the step applies.
  void observe_taken(ProgramWriter& w, const KeepingContext& c, std::size_t group) const;  // ours: snapshots
  void observe(ProgramWriter& w, const KeepingContext& c) const;                           // ours: snapshots
  // Where the script loads a checkpoint, each process has the momentum from its start, for the checkpoint to fill.
  void initialise(ProgramWriter& w, const KeepingContext& c);                        // ours: memory for load_state_dict
  void load(const MuonMomentum& saved) { momentum_scale_ = saved.momentum_scale_; }  // stage_1_and_2.py: load_state_dict, at 0.19.8
  void fold(StateFold& f) const;

 private:
  bool keeps_back(const KeepingContext& c) const { return c.behaviour.muon_staging != MuonStaging::none; }
  void make(ProgramWriter& w, const KeepingContext& c, std::size_t group);  // stage_1_and_2.py: _muon_momentum_buffer, at 0.19.8
  std::vector<ViewPiece> matrices(const KeepingContext& c, std::size_t group, Slice flat) const;

  std::vector<Slice> momentum_, staged_;  // by group, of whole matrices end to end; without a buffer until the first gradient
  std::vector<Tensor> taken_;             // by owned part
  double taken_scale_ = 1;                // the loss scale that these came with
  double staged_scale_ = 1;               // what of it the momentum keeps, where that waits for a step
  double momentum_scale_ = 1;             // likewise, of what it took in last
  bool pending_ = false;                  // staged_ waits for a step
};

}  // namespace gradledger
