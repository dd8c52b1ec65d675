// Runs that are broken off while a rank waits in the middle of the wrapper's code, whatever that makes of it.
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "gradledger/oracle.h"
#include "tests/library/runtime.h"

namespace library_test {
namespace {

enum class Makes { nothing_of_it, another_error_of_it };

// Rank 0 breaks the run by what it shows, while rank 1 waits in a collective and catches all that leaves it.
class Catching final : public Runtime {
 public:
  Catching(const gradledger::Configuration& configuration, gradledger::Communicator& ranks, Makes makes, int* caught)
      : Runtime(configuration, ranks, {.defect = Defect::shows_what_is_not_there}), makes_(makes), caught_(caught) {}

  void backward(const gradledger::Backward& backward) override {
    if (ranks_.rank() == 0) return Runtime::backward(backward);
    try {
      ranks_.barrier();
    } catch (...) {
      ++*caught_;
      if (makes_ == Makes::another_error_of_it) throw std::runtime_error("the network is down");
    }
  }

 private:
  Makes makes_;
  int* caught_;
};

TEST(a_run, that_is_broken_off_ends_where_a_wrapper_catches_everything) {
  for (const Makes makes : {Makes::nothing_of_it, Makes::another_error_of_it}) {
    int caught = 0;
    for (const std::uint64_t seed : {0, 1, 2, 3, 4, 5})
      EXPECT_THROW(run(averaging(), gradledger::ranks<Catching>("catching", makes, &caught), {.seed = seed}), gradledger::BrokenRun);
    EXPECT_GT(caught, 0) << "in some order rank 1 waits while rank 0 shows what is not there";
  }
}

TEST(runs, in_several_threads_do_not_disturb_each_other) {
  const auto text_of = [](Defect defect) { return run(averaging(), runtime({Reduces::at_the_last_backward, defect})).text; };
  const std::vector<Defect> defects{Defect::none, Defect::last_stays_local, Defect::counts_twice, Defect::forgets_the_first};
  std::vector<std::string> alone, together(defects.size());
  for (const Defect defect : defects) alone.push_back(text_of(defect));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < defects.size(); ++i) threads.emplace_back([&, i] { together[i] = text_of(defects[i]); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(alone, together);
}

TEST(a_make, that_returns_no_wrapper_is_not_run) {
  gradledger::Ranks ranks = runtime();
  ranks.make = [](const gradledger::Configuration&, gradledger::Communicator&) { return std::unique_ptr<gradledger::Wrapper>(); };
  gradledger::Worlds world = gradledger::world<Together>("together", Defect::none);
  world.make = [](const gradledger::Configuration&) { return std::unique_ptr<gradledger::World>(); };
  const auto refusal = [](const auto& wrapper) -> std::string {
    try {
      run(averaging(), wrapper);
    } catch (const gradledger::NotRun& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_NE(refusal(ranks).find("`make` returned no wrapper"), std::string::npos) << refusal(ranks);
  EXPECT_NE(refusal(world).find("`make` returned no wrapper"), std::string::npos) << refusal(world);
}

}  // namespace
}  // namespace library_test
