// Operations and collectives on weights: what each rank shows afterwards.
#include <gtest/gtest.h>

#include <vector>

#include "sim/execution/symbolic/symbolic_memory.h"

namespace gradledger {
namespace {

// Two ranks with two parameters of 4 and 2 elements, each in a buffer of 6.
class symbolic_memory : public ::testing::Test {
 protected:
  symbolic_memory() {
    workload_.world_size = 2;
    workload_.parameters.resize(2);
    workload_.parameters[0].numel = 4;
    workload_.parameters[1].numel = 2;
    ProgramWriter writer(program_);
    buffer_ = writer.whole(writer.declare("buffer", Dtype::float32, 6));
    other_ = writer.whole(writer.declare("other", Dtype::float32, 6));
  }

  // What the writer appends, on each rank.
  template <class Body>
  void run(SymbolicMemory& memory, Body&& body) {
    const std::size_t before = program_.ops.size();
    ProgramWriter writer(program_);
    body(writer);
    for (std::uint32_t r = 0; r < 2; ++r) {
      memory.prepare(r, program_);
      for (std::size_t i = before; i < program_.ops.size(); ++i) EXPECT_TRUE(memory.execute(program_.ops[i], r, program_));
    }
  }

  void deposit(ProgramWriter& w, std::uint32_t backward, double factor, bool add) {
    w.deposit(buffer_.part(0, 4), backward, 0, 0, factor, add);
    w.deposit(buffer_.part(4, 2), backward, 1, 0, factor, add);
  }

  void all_reduce(SymbolicMemory& memory, ReduceOp op, double factor = 1) {
    CollectiveCall call;
    call.kind = CollectiveKind::all_reduce;
    call.op = op;
    call.factor = factor;
    call.input = call.output = buffer_;
    const SymbolicParticipant participants[] = {{0, &call}, {1, &call}};
    memory.perform(participants, 0);
  }

  static View view_of(Slice slice, std::int32_t parameter, std::uint64_t offset = 0) { return {"view", {{slice, parameter, offset}}}; }

  Workload workload_;
  Timeline timeline_;
  Program program_;
  Slice buffer_, other_;
};

TEST_F(symbolic_memory, adds_up_what_is_deposited_with_the_weights_that_factors_stand_for) {
  SymbolicMemory memory(workload_, timeline_);
  run(memory, [&](ProgramWriter& w) {
    w.allocate(buffer_.buffer);
    deposit(w, 0, 1.0 / 3, false);
    deposit(w, 1, 1.0 / 3, true);
    w.divide(buffer_, 7);
  });
  const auto shown = memory.show(1, view_of(buffer_.part(0, 4), 0));
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0].numel, 4u);
  EXPECT_EQ(shown[0].shift, 0);
  ASSERT_EQ(shown[0].terms.size(), 1u);
  EXPECT_EQ(shown[0].terms[0].backward_end, 2u);
  EXPECT_EQ(shown[0].terms[0].rank_begin, 1u);
  EXPECT_EQ(shown[0].terms[0].weight, Rational(1, 21));
}

TEST_F(symbolic_memory, averages_over_ranks_and_hands_the_average_to_each) {
  SymbolicMemory memory(workload_, timeline_);
  run(memory, [&](ProgramWriter& w) {
    w.allocate(buffer_.buffer);
    deposit(w, 0, 1, false);
  });
  all_reduce(memory, ReduceOp::avg);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const auto shown = memory.show(rank, view_of(buffer_.part(4, 2), 1));
    ASSERT_EQ(shown.size(), 1u);
    ASSERT_EQ(shown[0].terms.size(), 1u);
    EXPECT_EQ(shown[0].terms[0].rank_begin, 0u);
    EXPECT_EQ(shown[0].terms[0].rank_end, 2u);
    EXPECT_EQ(shown[0].terms[0].weight, Rational(1, 2));
  }
}

TEST_F(symbolic_memory, says_how_far_away_belongs_what_lies_in_the_wrong_place) {
  SymbolicMemory memory(workload_, timeline_);
  run(memory, [&](ProgramWriter& w) {
    w.allocate(buffer_.buffer);
    w.allocate(other_.buffer);
    deposit(w, 0, 1, false);
    w.copy(other_.part(0, 5), buffer_.part(1, 5));
  });
  const auto shown = memory.show(0, view_of(other_.part(0, 4), 0));
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0].shift, 1);
  EXPECT_EQ(memory.show(0, view_of(other_.part(5, 1), 1, 1)).front().held, WeightPiece::Held::unwritten);
}

TEST_F(symbolic_memory, finds_what_the_script_plants_in_whatever_took_it_in) {
  timeline_.planted.push_back({0, 1, 1, std::numeric_limits<double>::infinity()});  // in the first element of the second parameter, on rank 1
  SymbolicMemory memory(workload_, timeline_);
  Slice flag;
  run(memory, [&](ProgramWriter& w) {
    w.allocate(buffer_.buffer);
    flag = w.whole(w.declare("flag", Dtype::uint8, 1));
    w.allocate(flag.buffer);
    deposit(w, 0, 1, false);
    w.fill(flag, 0);
    w.check_finite(flag, buffer_.part(0, 4));
  });
  EXPECT_EQ(memory.scalar(1, flag), 0);
  run(memory, [&](ProgramWriter& w) { w.check_finite(flag, buffer_); });
  EXPECT_EQ(memory.scalar(0, flag), 0);
  EXPECT_EQ(memory.scalar(1, flag), 1);
  all_reduce(memory, ReduceOp::sum);
  run(memory, [&](ProgramWriter& w) { w.check_finite(flag, buffer_.part(4, 1)); });
  EXPECT_EQ(memory.scalar(0, flag), 1);
}

}  // namespace
}  // namespace gradledger
