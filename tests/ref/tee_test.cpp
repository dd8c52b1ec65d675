// Several sinks of one run.
#include <gtest/gtest.h>

#include "ref/facts.h"

namespace gradledger::testing {
namespace {

TEST(a_tee, hands_weights_and_reductions_to_each_of_its_sinks) {
  class Counter final : public TraceSink {
   public:
    void weights(const WeightObservation& o) override { numel += o.pieces.front().numel; }
    void reduction(const ReductionRecord&) override { ++reductions; }
    std::uint64_t numel = 0, reductions = 0;
  };
  Counter one, other;
  ref::Tee tee;
  tee.add(&one);
  tee.add(nullptr);
  tee.add(&other);
  WeightPiece piece;
  piece.numel = 7;
  WeightObservation observation;
  observation.pieces = {&piece, 1};
  tee.weights(observation);
  tee.reduction({});
  for (const Counter& counter : {one, other}) {
    EXPECT_EQ(counter.numel, 7u);
    EXPECT_EQ(counter.reductions, 1u);
  }
}

}  // namespace
}  // namespace gradledger::testing
