#include "search/mutants/tape.h"

#include <algorithm>
#include <utility>

namespace gradledger::search {

Tape::Tape(Program& program, const BufferPurposes& purposes, std::size_t first, std::uint32_t event) : program_(program), purposes_(purposes) {
  for (std::size_t at = first; at < program.ops.size(); ++at) {
    Op op = program.ops[at];
    op.event = event;
    const auto copied = [&](Slice target, Slice source) { append(like(op, OpKind::copy, target, source)); };
    switch (op.kind) {
      case OpKind::interleave: program.interleavings[op.index].each(op.target, copied); break;
      case OpKind::part_rows: program.interleavings[op.index].each(op.source, [&](Slice in_rows, Slice in_part) { copied(in_part, in_rows); }); break;
      default: append(op);
    }
  }
}

void Tape::append(const Op& op) { insert(ops_.size(), op, next_number_++); }

std::size_t Tape::place_of(std::uint32_t number) const { return static_cast<std::size_t>(std::find(numbers_.begin(), numbers_.end(), number) - numbers_.begin()); }

void Tape::erase(std::size_t at) {
  ops_.erase(ops_.begin() + static_cast<std::ptrdiff_t>(at));
  numbers_.erase(numbers_.begin() + static_cast<std::ptrdiff_t>(at));
}

void Tape::insert(std::size_t at, const Op& op, std::uint32_t number) {
  ops_.insert(ops_.begin() + static_cast<std::ptrdiff_t>(at), op);
  numbers_.insert(numbers_.begin() + static_cast<std::ptrdiff_t>(at), number);
}

void Tape::move(std::size_t from, std::size_t to) {
  const Op op = ops_[from];
  const std::uint32_t number = numbers_[from];
  erase(from);
  insert(to, op, number);
}

Op Tape::like(const Op& other, OpKind kind, Slice target, Slice source, double scalar) {
  Op op;
  op.kind = kind;
  op.stream = other.stream;
  op.event = other.event;
  op.target = target;
  op.source = source;
  op.scalar = scalar;
  return op;
}

Slice Tape::declare(std::string name, Dtype dtype, std::uint64_t numel) {
  ProgramWriter writer(program_);
  return writer.whole(writer.declare(std::move(name), dtype, numel));
}

bool Tape::touches(const Op& op, BufferId buffer) const {
  switch (op.kind) {
    case OpKind::allocate:
    case OpKind::release: return false;
    case OpKind::deposit: return op.target.buffer == buffer;  // its source names a parameter
    case OpKind::collective: return call(op).input.buffer == buffer || call(op).output.buffer == buffer;
    case OpKind::sgd:
    case OpKind::adam: {
      const UpdateCall& u = program_.updates[op.index];
      return u.parameter.buffer == buffer || u.gradient.buffer == buffer || u.first_moment.buffer == buffer || u.second_moment.buffer == buffer;
    }
    case OpKind::observe: {
      const std::vector<ViewPiece>& pieces = program_.views[op.index].pieces;
      return std::any_of(pieces.begin(), pieces.end(), [&](const ViewPiece& piece) { return piece.slice.buffer == buffer; });
    }
    default: return op.target.buffer == buffer || op.source.buffer == buffer;
  }
}

}  // namespace gradledger::search
