// An fp32 partition of the rank for each group, to which reductions add what they reduced. The step takes it as it is, or with offload the
// master gradient that a boundary copies it to.
#pragma once

#include <vector>

#include "sim/frameworks/deepspeed/engine/keeping/kept_on_device.h"
#include "sim/frameworks/deepspeed/engine/keeping/kept_on_host.h"

namespace gradledger {

class Fp32Sums {
 public:
  explicit Fp32Sums(const FlatGroups& weights) : averaged_(weights), partition_sum_(weights.size()), partition_known_(weights.size()) {}

  // The rank's part of a parameter in the fp32 partition, which the first that asks for it makes.
  Slice partition_of(ProgramWriter& w, const KeepingContext& c, std::uint32_t parameter);  // stage_1_and_2.py: _get_compact_grad_partition_slice, at 0.19.8
  void make_partitions(ProgramWriter& w, const KeepingContext& c);                         // ours: of all groups
  void drop_partitions(ProgramWriter& w, const KeepingContext& c, bool skipped);           // stage_1_and_2.py: step, at 0.19.8
  // Raises where a group has none.
  void require() const;
  const Tensor& operator[](std::size_t group) const { return partition_sum_[group]; }
  const AveragedGradients& averaged() const { return averaged_; }
  // averaged_gradients of the groups that have a partition.
  void observe(ProgramWriter& w, const KeepingContext& c, double scale) const;  // ours: snapshots
  void fold(StateFold& f) const;

 private:
  void make_partition(ProgramWriter& w, const KeepingContext& c, std::size_t group);  // stage_1_and_2.py: _build_compact_grad_partition_buffer, at 0.19.8

  AveragedGradients averaged_;         // views of the partitions
  std::vector<Tensor> partition_sum_;  // by group
  std::vector<bool> partition_known_;  // by group: the list had it once
};

class DevicePartition final : public KeptOnDevice {
 public:
  explicit DevicePartition(const FlatGroups& weights) : sums_(weights) {}

  bool sums_in_fp32() const override { return true; }
  // stage_1_and_2.py: _get_compact_grad_partition_slice, at 0.19.8
  Slice sum_of(ProgramWriter& w, const KeepingContext& c, std::uint32_t parameter) override { return sums_.partition_of(w, c, parameter); }
  void keep(ProgramWriter& w, const KeepingContext& c, std::uint32_t parameter) override;             // stage_1_and_2.py: copy_grads_in_partition, at 0.19.8
  void end_of_reductions(ProgramWriter& w, const KeepingContext& c) override;                         // stage_1_and_2.py: independent_gradient_partition_epilogue, at 0.19.8
  void finalise(ProgramWriter& w, const KeepingContext& c) override { sums_.make_partitions(w, c); }  // stage_1_and_2.py: finalize_gradient_accumulation_boundary, at 0.19.8
  void require(const KeepingContext&) const override { sums_.require(); }
  Slice step_gradient(ProgramWriter& w, const KeepingContext& c, std::size_t group, Tensor& flat) override;              // stage_1_and_2.py: step, at 0.19.8
  void drop(ProgramWriter& w, const KeepingContext& c, bool skipped) override { sums_.drop_partitions(w, c, skipped); }  // stage_1_and_2.py: step, at 0.19.8
  void observe(ProgramWriter& w, const KeepingContext& c, double scale) const override { sums_.observe(w, c, scale); }   // ours: snapshots
  void fold(StateFold& f) const override { sums_.fold(f); }

 private:
  const AveragedGradients& averaged() const override { return sums_.averaged(); }

  Fp32Sums sums_;
};

class OffloadedPartition final : public KeptOnHost {
 public:
  OffloadedPartition(const FlatGroups& weights, std::size_t parameters) : KeptOnHost(parameters), sums_(weights) {}

  bool sums_in_fp32() const override { return true; }
  // stage_1_and_2.py: _get_compact_grad_partition_slice, at 0.19.8
  Slice sum_of(ProgramWriter& w, const KeepingContext& c, std::uint32_t parameter) override { return sums_.partition_of(w, c, parameter); }
  void keep(ProgramWriter& w, const KeepingContext& c, std::uint32_t parameter) override;  // stage_1_and_2.py: copy_grads_in_partition, at 0.19.8
  void drop(ProgramWriter& w, const KeepingContext& c, bool skipped) override;             // stage_1_and_2.py: step, at 0.19.8
  void observe(ProgramWriter& w, const KeepingContext& c, double scale) const override;    // ours: snapshots
  void fold(StateFold& f) const override;

 private:
  // stage_1_and_2.py: finalize_gradient_accumulation_boundary, at 0.19.8
  void finalise_parameter(ProgramWriter& w, const KeepingContext& c, std::uint32_t parameter) override { keep(w, c, parameter); }

  Fp32Sums sums_;
};

}  // namespace gradledger
