#include "sim/execution/operations.h"

#include <algorithm>
#include <cmath>

#include "sim/base/hash.h"
#include "sim/numeric/kernels.h"
#include "sim/numeric/scalar.h"

namespace gradledger {
namespace {

Dtype dtype_of(const Rank& rank, Slice slice) { return rank.program.buffers[slice.buffer].stored; }

bool moves_chunks(const Op& op) { return op.kind == OpKind::interleave || op.kind == OpKind::part_rows; }

Range range_of(Slice slice) { return {slice.offset, slice.offset + slice.numel}; }

}  // namespace

template <class Copied>
void Operations::each_chunk(const Op& op, const Rank& rank, Copied&& copied) {
  const Interleaving& of = rank.program.interleavings[op.index];
  if (op.kind == OpKind::interleave) of.each(op.target, copied);
  else of.each(op.source, [&](Slice in_rows, Slice in_slice) { copied(in_slice, in_rows); });
}

void Operations::execute(const Op& op, std::uint32_t at, Rank& rank, std::uint32_t rank_number, std::span<const std::uint32_t> members) {
  if (changes_storage(op.kind)) return change_storage(op, at, rank, rank_number, members);
  if (dry_) return;
  track_written(op, rank, rank_number);
  if (!devices_) return compute(op, rank, rank_number);
  if (moves_chunks(op)) return copy_chunks_on_device(op, rank, rank_number);
  values_.clear();
  if (op.kind == OpKind::deposit) values_of_deposit(op, rank_number);
  devices_->enqueue(rank_number, command_of(op, rank.program), values_);
}

void Operations::change_storage(const Op& op, std::uint32_t at, Rank& rank, std::uint32_t rank_number, std::span<const std::uint32_t> members) {
  const BufferDeclaration& declaration = rank.program.buffers[op.target.buffer];
  const bool allocates = op.kind == OpKind::allocate;
  const bool again = allocates && rank.memory.allocate(declaration, op.target.buffer);
  if (!allocates) rank.memory.release(op.target.buffer);
  if (devices_) devices_->enqueue(rank_number, command_of(op, rank.program), {});
  const auto report = [&](std::uint32_t of) {
    sink_.memory({of, op.event, allocates, declaration.name, declaration.space, declaration.declared_bytes, at < rank.operations_at_start, again, at});
  };
  report(rank_number);
  if (all_memory_of_members_ || (allocates && !again)) std::for_each(members.begin(), members.end(), report);
}

// What is written after the operation; reports what it reads and nobody wrote.
void Operations::track_written(const Op& op, Rank& rank, std::uint32_t rank_number) {
  switch (op.kind) {
    case OpKind::deposit:
      if (op.flag != 0) return;
      [[fallthrough]];
    case OpKind::fill: return rank.memory.storage(op.target.buffer).written.add(range_of(op.target));
    case OpKind::copy: return rank.memory.copy_written(op.target, op.source);
    case OpKind::interleave:
    case OpKind::part_rows: return each_chunk(op, rank, [&](Slice to, Slice from) { rank.memory.copy_written(to, from); });
    case OpKind::accumulate: return rank.memory.intersect_written(op.target, op.source);
    case OpKind::squared_norm: require_written(rank, rank_number, op.event, op.source, "the gradient norm"); return;
    case OpKind::check_finite: require_written(rank, rank_number, op.event, op.source, "the overflow check"); return;
    case OpKind::sgd:
    case OpKind::adam: require_written(rank, rank_number, op.event, rank.program.updates[op.index].gradient, "the optimizer"); return;
    default: return;
  }
}

// What fp64 does otherwise. No gradient follows from a norm in a linear run, or from an update in any.
bool Operations::replaced_in_wide(const Op& op) {
  switch (op.kind) {
    case OpKind::squared_norm:
    case OpKind::square_root:
    case OpKind::sgd:
    case OpKind::adam: return true;
    default: return false;
  }
}

// fp64 takes the scalar as it is given; every other dtype takes it in fp32.
void Operations::scale(const Op& op, Rank& rank) const {
  const Dtype dtype = dtype_of(rank, op.target);
  std::byte* data = rank.memory.at(op.target, dtype);
  if (dtype == Dtype::float64) {
    auto* values = reinterpret_cast<double*>(data);
    for (std::uint32_t i = 0; i < op.target.numel; ++i) values[i] = op.kind == OpKind::multiply ? values[i] * op.scalar : values[i] / op.scalar;
    return;
  }
  const auto scalar = static_cast<float>(op.scalar);
  if (op.kind == OpKind::multiply) numeric::multiply(dtype, data, scalar, op.target.numel);
  else if (division_ == Division::reciprocal && op.stream != Stream::host) numeric::multiply(dtype, data, 1.0F / scalar, op.target.numel);
  else numeric::divide(dtype, data, scalar, op.target.numel);
}

void Operations::compute(const Op& op, Rank& rank, std::uint32_t rank_number) {
  if (wide_ && replaced_in_wide(op)) return;
  switch (op.kind) {
    case OpKind::deposit: return deposit(op, rank, rank_number);
    case OpKind::fill: {
      const Dtype dtype = dtype_of(rank, op.target);
      return numeric::fill(dtype, rank.memory.at(op.target, dtype), op.scalar, op.target.numel);
    }
    case OpKind::copy:
    case OpKind::accumulate: return two_operands(op, rank);
    case OpKind::interleave:
    case OpKind::part_rows: return each_chunk(op, rank, [&](Slice to, Slice from) { copy(to, from, rank); });
    case OpKind::multiply:
    case OpKind::divide: return scale(op, rank);
    case OpKind::squared_norm:
    case OpKind::square_root:
    case OpKind::check_finite: return reduce_to_scalar(op, rank);
    case OpKind::sgd:
    case OpKind::adam: return update(op, rank);
    default: expects(false, "an operation reached the arithmetic that is not arithmetic");
  }
}

// The gradient is exact in the source and the factor an fp32 scalar, so their product is exact in a double: one rounding into the dtype.
void Operations::values_of_deposit(const Op& op, std::uint32_t rank_number) {
  values_.resize(op.target.numel);
  if (op.index == no_index) source_.initial_parameter(op.source.buffer, op.source.offset, values_);
  else source_.gradient(op.index, rank_number, op.source.buffer, op.source.offset, values_);
  if (op.scalar == 1.0) return;
  const double factor = wide_ ? op.scalar : static_cast<double>(static_cast<float>(op.scalar));
  for (double& value : values_) value *= factor;
}

void Operations::deposit(const Op& op, Rank& rank, std::uint32_t rank_number) {
  const Dtype dtype = dtype_of(rank, op.target);
  const std::size_t n = op.target.numel;
  values_of_deposit(op, rank_number);
  std::byte* target = rank.memory.at(op.target, dtype);
  if (op.flag == 0) return numeric::convert(dtype, target, Dtype::float64, values_.data(), n);
  rounded_.resize(n * size_of(dtype));
  numeric::convert(dtype, rounded_.data(), Dtype::float64, values_.data(), n);
  numeric::accumulate(dtype, target, dtype, rounded_.data(), n);
}

void Operations::two_operands(const Op& op, Rank& rank) {
  if (op.kind == OpKind::copy) return copy(op.target, op.source, rank);
  const Dtype to = dtype_of(rank, op.target);
  const Dtype from = dtype_of(rank, op.source);
  const std::byte* source = rank.memory.at(op.source, from);
  numeric::accumulate(to, rank.memory.at(op.target, to), from, source, op.target.numel);
}

void Operations::copy(Slice target, Slice source, Rank& rank) {
  const Dtype to = dtype_of(rank, target);
  const Dtype from = dtype_of(rank, source);
  const std::byte* data = rank.memory.at(source, from);
  numeric::convert(to, rank.memory.at(target, to), from, data, target.numel);
}

// A device knows copies alone.
void Operations::copy_chunks_on_device(const Op& op, Rank& rank, std::uint32_t rank_number) {
  Op one = op;
  one.kind = OpKind::copy;
  each_chunk(op, rank, [&](Slice to, Slice from) {
    one.target = to;
    one.source = from;
    devices_->enqueue(rank_number, command_of(one, rank.program), {});
  });
}

void Operations::reduce_to_scalar(const Op& op, Rank& rank) {
  const Dtype dtype = dtype_of(rank, op.target);
  std::byte* target = rank.memory.at(op.target, dtype);
  if (op.kind == OpKind::square_root) {
    expects(dtype == Dtype::float32, "norms end in fp32");
    auto* scalar = reinterpret_cast<float*>(target);
    *scalar = numeric::canonical(std::sqrt(*scalar));
    return;
  }
  const Dtype from = dtype_of(rank, op.source);
  const std::byte* source = rank.memory.at(op.source, from);
  if (op.kind == OpKind::squared_norm) *reinterpret_cast<double*>(target) += numeric::squared_norm(from, source, op.source.numel);
  else if (!numeric::all_finite(from, source, op.source.numel)) *target = std::byte{1};
}

void Operations::update(const Op& op, Rank& rank) {
  const UpdateCall& call = rank.program.updates[op.index];
  const auto data = [&](Slice slice) { return reinterpret_cast<float*>(rank.memory.at(slice, Dtype::float32)); };
  const std::size_t n = call.parameter.numel;
  if (op.kind == OpKind::sgd) return numeric::sgd(data(call.parameter), data(call.gradient), call.scalars.learning_rate, call.scalars.weight_decay, n);
  const auto step = call.cpu_formula ? numeric::adam_cpu : numeric::adam_fused;
  step(data(call.parameter), data(call.gradient), data(call.first_moment), data(call.second_moment), call.scalars, n);
}

bool Operations::require_written(Rank& rank, std::uint32_t rank_number, std::uint32_t event, Slice slice, const char* reader) {
  const Storage& storage = rank.memory.storage(slice.buffer);
  if (storage.holds(slice)) return true;
  const std::uint64_t key = hash_keys({rank_number, event, slice.buffer});
  if (std::find(reported_.begin(), reported_.end(), key) != reported_.end()) return false;
  reported_.push_back(key);
  const Range whole = range_of(slice);
  const Range gap = storage.live ? storage.written.first_gap(whole).value_or(whole) : whole;
  sink_.unwritten({rank_number, event, rank.program.buffers[slice.buffer].name, gap.begin, gap.end, reader, !storage.live});
  return false;
}

}  // namespace gradledger
