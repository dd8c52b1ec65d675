// Every collective of the communicator, in wrappers that are right because of what it gives.
#include "gradledger/testing.h"
#include "tests/library/runtime.h"

namespace library_test {
namespace {

using gradledger::run;
using gradledger::testing::HasFinding;
using gradledger::testing::LosesNothing;

// One parameter, of which each rank steps its part.
class Sharded final : public gradledger::Wrapper {
 public:
  static constexpr gradledger::Shows shows{.applied_gradients = true, .accumulators = true, .weights = true};

  Sharded(const gradledger::Configuration& configuration, gradledger::Communicator& ranks, std::uint32_t turned)
      : ranks_(ranks), weights_(configuration.parameters.at(0).weights), sums_(weights_.size()), part_(weights_.size() / ranks.world_size()), turned_(turned) {
    if (ranks_.rank() > 0) weights_.assign(weights_.size(), 0.0f);
    ranks_.broadcast(weights_, 0);  // as a runtime begins
    ranks_.barrier();
  }

  void backward(const gradledger::Backward& backward) override {
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += backward.gradients.at(0).values[i] / 2;
  }
  void step() override {
    applied_.resize(part_);
    ranks_.reduce_scatter(sums_, applied_, gradledger::Reduction::avg);
    Values part(weights_.begin() + static_cast<std::ptrdiff_t>(begin()), weights_.begin() + static_cast<std::ptrdiff_t>(begin() + part_));
    for (std::size_t i = 0; i < part_; ++i) part[i] -= applied_[i];
    ranks_.all_gather(part, weights_);
    sums_.assign(sums_.size(), 0.0f);
  }
  void show(gradledger::Shown& out) override {
    out.add(gradledger::Role::local, "sums", 0, sums_);
    out.add(gradledger::Role::parameter, "weights", 0, weights_);
    if (!applied_.empty()) out.add<float>(gradledger::Role::applied, "part", {{0, (begin() + turned_) % weights_.size(), part_}}, applied_, gradledger::Dtype::fp32);
  }

 private:
  std::size_t begin() const { return ranks_.rank() * part_; }

  gradledger::Communicator& ranks_;
  Values weights_, sums_, applied_;
  std::size_t part_;
  std::uint32_t turned_;  // where it says that its part begins, which may be wrong
};

std::string of_one_parameter(std::uint32_t world_size) {
  return R"({"name": "sharded", "world_size": )" + std::to_string(world_size) + R"(, "parameters": [{"name": "w", "numel": 8}], "contract": {"divide_by": 2},
             "script": [{"repeat": {"times": 2, "of": [{"backward": {"micro_batches": 2}}, {"step": {}}]}}]})";
}

TEST(a_sharded_wrapper, is_judged_by_the_parts_that_it_shows) {
  for (const std::uint32_t world_size : {1u, 2u, 4u, 8u}) EXPECT_THAT(run(of_one_parameter(world_size), gradledger::ranks<Sharded>("sharded", 0u)), LosesNothing());
  EXPECT_THAT(run(of_one_parameter(2), gradledger::ranks<Sharded>("sharded", 4u)), HasFinding("misplaced-shard"));
}

// The mean goes to one rank, and from there to all; or only the first half does.
class ByTheRoot final : public Runtime {
 public:
  ByTheRoot(const gradledger::Configuration& configuration, gradledger::Communicator& ranks, bool sends) : Runtime(configuration, ranks, {}), sends_(sends) {}

  void step() override {
    for (Values& sum : sums_) {
      ranks_.reduce(sum, 1, gradledger::Reduction::avg);
      if (sends_) ranks_.broadcast(sum, 1);
    }
    reduced_ = sums_;
    applied_ = reduced_;
    for (std::size_t p = 0; p < weights_.size(); ++p)
      for (std::size_t i = 0; i < weights_[p].size(); ++i) weights_[p][i] -= lr_ * applied_[p][i];
    drop();
  }

 private:
  bool sends_;
};

TEST(a_wrapper, that_reduces_to_one_rank_is_right_where_that_one_tells_the_others) {
  EXPECT_THAT(run(averaging(), gradledger::ranks<ByTheRoot>("by-the-root", true)), LosesNothing());
  const gradledger::Report report = run(averaging(), gradledger::ranks<ByTheRoot>("by-the-root", false));
  EXPECT_THAT(report, HasFinding("missing-reduction").rank(0));
  EXPECT_FALSE(HasFinding("missing-reduction").rank(1).MatchAndExplain(report, nullptr)) << "the root has the mean: " << report;
}

// Takes more than there is room for.
class Careless final : public Runtime {
 public:
  Careless(const gradledger::Configuration& configuration, gradledger::Communicator& ranks) : Runtime(configuration, ranks, {}) {}

  void step() override {
    Values all(3);
    ranks_.all_gather(sums_[0], all);
  }
};

TEST(a_result, that_there_is_no_room_for_is_an_error_of_the_wrapper) {
  const gradledger::Report report = run(averaging(), gradledger::ranks<Careless>("careless"));
  ASSERT_THAT(report, HasFinding("engine-error"));
  EXPECT_NE(report.text.find("the result has 48 bytes, and there is room for 12"), std::string::npos) << report;
}

}  // namespace
}  // namespace library_test
