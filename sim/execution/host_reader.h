// What the host reads of a rank's buffers: values that decisions hang on, and snapshots for the sink. On devices it fetches them first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/hash.h"
#include "sim/execution/devices.h"
#include "sim/execution/operations.h"
#include "sim/execution/rank.h"
#include "sim/execution/symbolic/symbolic_memory.h"
#include "sim/numeric/kernels.h"
#include "sim/trace/producer.h"

namespace gradledger {

class HostReader {
 public:
  // devices: hold the buffers, if any are given. weights: stand in the place of values, if given.
  HostReader(std::vector<Rank>& ranks, Operations& operations, Devices* devices, SymbolicMemory* weights, TraceSink& sink)
      : ranks_(ranks), operations_(operations), devices_(devices), weights_(weights), sink_(sink) {}

  // The source of an operation, as its stream reads it.
  double scalar(std::uint16_t r, const Op& op, const char* reader) {
    if (weights_) return weights_->scalar(r, op.source);
    Rank& rank = ranks_[r];
    operations_.require_written(rank, r, op.event, op.source, reader);
    const Dtype dtype = rank.program.buffers[op.source.buffer].stored;
    const std::byte* data = nullptr;
    if (devices_) {
      const Operand operand{op.source.buffer, op.source.offset, 1, dtype};
      devices_->fetch(r, op.stream, {&operand, 1}, fetched_);
      data = fetched_.data();
    } else {
      data = rank.memory.at(op.source);
    }
    if (dtype == Dtype::uint8) return static_cast<double>(std::to_integer<unsigned>(*data));
    if (dtype == Dtype::int32) return *reinterpret_cast<const std::int32_t*>(data);
    if (dtype == Dtype::float64) return *reinterpret_cast<const double*>(data);
    double value = 0;
    numeric::convert(Dtype::float64, &value, dtype, data, 1);
    return value;
  }

  // Likewise of weights, of a rank that leads and of those that it leads. Views are each rank's own.
  void show_weights(std::uint32_t leader, std::span<const std::uint32_t> members, const Op& op) {
    const View& of_leader = ranks_[leader].program.views[op.index];
    const MemorySpace space = space_of(ranks_[leader].program, of_leader);
    sink_.weights({leader, op.event, op.flag != 0, of_leader.name, op.role, op.scalar, weights_->show(leader, of_leader), space});
    for (const std::uint32_t r : members) {
      const View& view = ranks_[r].program.views[op.index];
      sink_.weights({r, op.event, op.flag != 0, of_leader.name, op.role, op.scalar, weights_->show_member(r, view), space});
    }
  }

  // Shows the snapshot that the operation asks for. The hash is of its values.
  std::uint64_t show(std::uint16_t r, const Op& op) {
    Rank& rank = ranks_[r];
    const View& view = rank.program.views[op.index];
    if (devices_) fetch(r, op.stream, view);
    std::size_t at = 0;
    pieces_.clear();
    PairHash values;
    values.add(r, op.event);
    for (const ViewPiece& piece : view.pieces) {
      if (piece.parameter >= 0 && op.role != Role::scratch) operations_.require_written(rank, r, op.event, piece.slice, "a snapshot");
      Storage& storage = rank.memory.storage(piece.slice.buffer);
      const Dtype dtype = storage.dtype;
      const std::byte* data = devices_ ? fetched_.data() + at : storage.at(piece.slice);
      if (devices_) at += fetched_bytes(operands_[pieces_.size()]);
      pieces_.push_back({piece.parameter, piece.parameter_offset, piece.slice.numel, dtype, data});
      if (piece.parameter >= 0) values.add_bytes({data, piece.slice.numel * std::size_t{size_of(dtype)}});
    }
    sink_.observe({r, op.event, op.flag != 0, view.name, op.role, op.scalar, pieces_, space_of(rank.program, view)});
    return values.value();
  }

 private:
  static MemorySpace space_of(const Program& program, const View& view) {
    return view.pieces.empty() ? MemorySpace::device : program.buffers[view.pieces.front().slice.buffer].space;
  }

  void fetch(std::uint16_t r, Stream stream, const View& view) {
    operands_.clear();
    for (const ViewPiece& piece : view.pieces)
      operands_.push_back({piece.slice.buffer, piece.slice.offset, piece.slice.numel, ranks_[r].program.buffers[piece.slice.buffer].stored});
    devices_->fetch(r, stream, operands_, fetched_);
  }

  std::vector<Rank>& ranks_;
  Operations& operations_;
  Devices* const devices_;
  SymbolicMemory* const weights_;
  TraceSink& sink_;
  std::vector<ObservedPiece> pieces_;
  std::vector<Operand> operands_;   // of a snapshot on a device
  std::vector<std::byte> fetched_;  // its bytes
};

}  // namespace gradledger
