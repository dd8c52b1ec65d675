// The weights that a base optimizer steps in stages 1 and 2 and in BF16_Optimizer: flat, padded, replicated in the model dtype, with the
// rank's fp32 partition.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/engine/base_optimizer.h"
#include "sim/frameworks/deepspeed/engine/partition.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// One of the optimizer's groups in stages 1 and 2 and in BF16_Optimizer: flat weights, padded, replicated in the model dtype; this rank's
// fp32 partition.
class FlatWeights {
 public:
  FlatWeights(const Scenario& scenario, std::uint32_t rank, std::uint32_t number, const RankGroup& group, const std::string& master_name, std::size_t first_part, Dealing dealing);

  const FlatPartition& layout() const { return layout_; }
  const std::vector<OwnedPart>& parts() const { return parts_; }
  const ProcessGroup& peers() const { return peers_; }
  std::uint32_t index_in_peers() const { return rank_; }
  bool of_experts() const { return of_experts_; }
  // Where its parts stand among the parts of all groups.
  std::size_t first_part() const { return first_part_; }
  std::size_t end_of_parts() const { return first_part_ + parts_.size(); }
  OwnedPart owned(std::uint32_t parameter) const {
    OwnedPart part = layout_.owned(rank_, parameter);
    part.group = number_;
    return part;
  }
  // Whether the parameter begins in the rank's partition, be it without elements.
  bool owns_place(std::uint32_t parameter) const { return layout_.partition() > 0 && layout_.offset(parameter) / layout_.partition() == rank_; }
  const std::string& master_name() const { return master_name_; }

  void initialise(ProgramWriter& w);  // stage_1_and_2.py, bf16_optimizer.py: __init__, at 0.19.7
  // Base step with `gradient` (fp32, the partition's length), weights of the partition = master.
  void step(ProgramWriter& w, Slice gradient);  // stage_1_and_2.py: _optimizer_step, at 0.19.7
  void all_gather(ProgramWriter& w) const;      // utils.py: all_gather_dp_groups, at 0.19.7
  void load(const FlatWeights& saved) { optimizer_.load(saved.optimizer_); }
  void observe(ProgramWriter& w) const;  // ours: snapshots

  // The partition's elements as view pieces over `slice` (of the partition's length).
  std::vector<ViewPiece> partition_pieces(Slice slice) const;

 private:
  ProcessGroup peers_;
  std::uint32_t rank_;  // its number among them
  std::uint32_t number_;
  std::string suffix_;  // "[number]"
  bool of_experts_;
  const Scenario* scenario_;
  FlatPartition layout_;
  std::vector<OwnedPart> parts_;
  std::size_t first_part_;
  std::string master_name_;
  BaseOptimizer optimizer_;
  Slice weights_, master_;
};

// All of a rank's groups.
class FlatGroups {
 public:
  // master_name: of a partition, without its number.
  FlatGroups(const Scenario& scenario, std::uint32_t rank, const std::vector<RankGroup>& groups, const std::string& master_name, Dealing dealing);

  std::size_t size() const { return groups_.size(); }
  FlatWeights& operator[](std::size_t group) { return groups_[group]; }
  const FlatWeights& operator[](std::size_t group) const { return groups_[group]; }
  auto begin() const { return groups_.begin(); }
  auto end() const { return groups_.end(); }
  // Precondition: the rank holds the parameter, and it has a gradient.
  std::uint32_t number_of(std::uint32_t parameter) const { return group_of_[parameter]; }
  const FlatWeights& of(std::uint32_t parameter) const { return groups_[group_of_[parameter]]; }

  const std::vector<std::uint32_t>& order() const { return order_; }  // of the parameters, group by group as they were given
  const std::vector<OwnedPart>& parts() const { return parts_; }      // of all groups, each in flat order

  void initialise(ProgramWriter& w);        // stage_1_and_2.py, bf16_optimizer.py: __init__, at 0.19.7
  void all_gather(ProgramWriter& w) const;  // utils.py: all_gather_dp_groups, at 0.19.7
  void load(const FlatGroups& saved) {
    for (std::size_t g = 0; g < groups_.size(); ++g) groups_[g].load(saved.groups_[g]);
  }
  void observe(ProgramWriter& w) const;  // ours: snapshots

 private:
  std::vector<FlatWeights> groups_;
  std::vector<std::uint32_t> group_of_, order_;
  std::vector<OwnedPart> parts_;
};

}  // namespace gradledger
