// What one call of an engine wrote, before any of it runs: operations that a fault may change, drop, repeat or move.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "sim/engine/buffers.h"
#include "sim/engine/engine.h"

namespace gradledger::search {

// Where a call of the engine stands.
struct Moment {
  const Scenario& scenario;
  const Timeline& timeline;
  const Event* event = nullptr;  // null: the engine is made
  std::uint32_t rank = 0;
};

// Operations keep the order in which the host enqueues them; each goes to the end of its own stream. What puts rows together or takes them apart stands here as
// the copies that it is short for, so that a fault can be in one of them.
class Tape {
 public:
  // program: the engine's own, which declares what the operations name.
  Tape(Program& program, const BufferPurposes& purposes, std::size_t first, std::uint32_t event);

  std::size_t size() const { return ops_.size(); }
  const Op& operator[](std::size_t at) const { return ops_[at]; }
  Op& operator[](std::size_t at) { return ops_[at]; }
  const std::vector<Op>& ops() const { return ops_; }

  const CollectiveCall& call(const Op& op) const { return program_.collectives[op.index]; }
  CollectiveCall& call(const Op& op) { return program_.collectives[op.index]; }
  UpdateCall& update(const Op& op) { return program_.updates[op.index]; }
  const BufferDeclaration& buffer(Slice slice) const { return program_.buffers[slice.buffer]; }
  BufferPurpose purpose(Slice slice) const { return purposes_.of(buffer(slice).name); }

  // An operation keeps its number wherever it is moved to.
  std::uint32_t number(std::size_t at) const { return numbers_[at]; }
  std::size_t place_of(std::uint32_t number) const;  // size() once it is erased

  void erase(std::size_t at);
  void insert(std::size_t at, const Op& op) { insert(at, op, next_number_++); }
  void move(std::size_t from, std::size_t to);  // `to`: where it stands afterwards

  // An operation on the stream of another, of the same event.
  static Op like(const Op& other, OpKind kind, Slice target = {}, Slice source = {}, double scalar = 0);
  // A new buffer; no operation.
  Slice declare(std::string name, Dtype dtype, std::uint64_t numel);

  // Whether an operation reads or writes a buffer, its allocation and release left out.
  bool touches(const Op& op, BufferId buffer) const;

 private:
  void append(const Op& op);
  void insert(std::size_t at, const Op& op, std::uint32_t number);

  Program& program_;
  const BufferPurposes& purposes_;
  std::vector<Op> ops_;
  std::vector<std::uint32_t> numbers_;  // of each
  std::uint32_t next_number_ = 0;
};

}  // namespace gradledger::search
