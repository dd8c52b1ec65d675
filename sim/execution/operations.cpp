#include "sim/execution/operations.h"

#include <algorithm>
#include <cmath>

#include "sim/base/hash.h"
#include "sim/numeric/kernels.h"
#include "sim/numeric/scalar.h"

namespace gradledger {
namespace {

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
  if (!devices_) return run<true>(op, rank, rank_number);
  run<false>(op, rank, rank_number);
  enqueue(op, rank, rank_number);
}

void Operations::enqueue(const Op& op, Rank& rank, std::uint32_t rank_number) {
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

// Norms and updates are not computed in fp64: no gradient follows from a norm in a linear run, or from an update in any.
template <bool computes>
void Operations::run(const Op& op, Rank& rank, std::uint32_t rank_number) {
  RankMemory& memory = rank.memory;
  switch (op.kind) {
    case OpKind::deposit: {
      Storage& target = memory.storage(op.target.buffer);
      if (op.flag == 0) target.written.add(range_of(op.target));
      if constexpr (computes) deposit(op, target, rank_number);
      return;
    }
    case OpKind::fill: {
      Storage& target = memory.storage(op.target.buffer);
      target.written.add(range_of(op.target));
      if constexpr (computes) numeric::fill(target.dtype, target.at(op.target), op.scalar, op.target.numel);
      return;
    }
    case OpKind::copy: return copy<computes>(op.target, op.source, memory);
    case OpKind::accumulate: {
      Storage &target = memory.storage(op.target.buffer), &source = memory.storage(op.source.buffer);
      RankMemory::intersect_written(target, op.target, source, op.source);
      if constexpr (!computes) return;
      const std::byte* from = source.at(op.source);
      return numeric::accumulate(target.dtype, target.at(op.target), source.dtype, from, op.target.numel);
    }
    case OpKind::interleave:
    case OpKind::part_rows: return each_chunk(op, rank, [&](Slice to, Slice from) { copy<computes>(to, from, memory); });
    case OpKind::multiply:
    case OpKind::divide:
      if constexpr (computes) scale(op, memory.storage(op.target.buffer));
      return;
    case OpKind::squared_norm:
      require_written(rank, rank_number, op.event, op.source, "the gradient norm");
      if (computes && !wide_) {
        Storage& source = memory.storage(op.source.buffer);
        *reinterpret_cast<double*>(memory.at(op.target)) += numeric::squared_norm(source.dtype, source.at(op.source), op.source.numel);
      }
      return;
    case OpKind::square_root:
      if (computes && !wide_) square_root(memory.storage(op.target.buffer), op.target);
      return;
    case OpKind::check_finite: {
      require_written(rank, rank_number, op.event, op.source, "the overflow check");
      Storage& source = memory.storage(op.source.buffer);
      if (computes && !numeric::all_finite(source.dtype, source.at(op.source), op.source.numel)) *memory.at(op.target) = std::byte{1};
      return;
    }
    case OpKind::sgd:
    case OpKind::adam:
      require_written(rank, rank_number, op.event, rank.program.updates[op.index].gradient, "the optimizer");
      if (computes && !wide_) update(op, rank);
      return;
    default: expects(false, "an operation reached the arithmetic that is not arithmetic");
  }
}

// fp64 takes the scalar as it is given; every other dtype takes it in fp32.
void Operations::scale(const Op& op, Storage& target) const {
  std::byte* data = target.at(op.target);
  if (target.dtype == Dtype::float64) {
    auto* values = reinterpret_cast<double*>(data);
    for (std::uint32_t i = 0; i < op.target.numel; ++i) values[i] = op.kind == OpKind::multiply ? values[i] * op.scalar : values[i] / op.scalar;
    return;
  }
  const auto scalar = static_cast<float>(op.scalar);
  if (op.kind == OpKind::multiply) numeric::multiply(target.dtype, data, scalar, op.target.numel);
  else if (division_ == Division::reciprocal && op.stream != Stream::host) numeric::multiply(target.dtype, data, 1.0F / scalar, op.target.numel);
  else numeric::divide(target.dtype, data, scalar, op.target.numel);
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

void Operations::deposit(const Op& op, Storage& target, std::uint32_t rank_number) {
  const std::size_t n = op.target.numel;
  values_of_deposit(op, rank_number);
  std::byte* data = target.at(op.target);
  if (op.flag == 0) return numeric::convert(target.dtype, data, Dtype::float64, values_.data(), n);
  rounded_.resize(n * target.element_bytes);
  numeric::convert(target.dtype, rounded_.data(), Dtype::float64, values_.data(), n);
  numeric::accumulate(target.dtype, data, target.dtype, rounded_.data(), n);
}

template <bool computes>
void Operations::copy(Slice target, Slice source, RankMemory& memory) {
  Storage &to = memory.storage(target.buffer), &from = memory.storage(source.buffer);
  RankMemory::copy_written(to, target, from, source);
  if constexpr (!computes) return;
  const std::byte* data = from.at(source);
  numeric::convert(to.dtype, to.at(target), from.dtype, data, target.numel);
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

void Operations::square_root(Storage& target, Slice scalar) {
  expects(target.dtype == Dtype::float32, "norms end in fp32");
  auto* value = reinterpret_cast<float*>(target.at(scalar));
  *value = numeric::canonical(std::sqrt(*value));
}

void Operations::update(const Op& op, Rank& rank) {
  const UpdateCall& call = rank.program.updates[op.index];
  const auto data = [&](Slice slice) { return reinterpret_cast<float*>(rank.memory.at(slice)); };
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
