// Scripts that nobody wrote: only those of the contract are tried, and what fails is made small.
#include <set>

#include "gradledger/testing.h"
#include "tests/library/runtime.h"

namespace library_test {
namespace {

using gradledger::check_orderings;
using gradledger::explore_orderings;
using gradledger::OrderingsReport;
using gradledger::testing::HasFinding;
using gradledger::testing::LosesNothing;

const std::string discards = R"("contract": {"divide_by": 4, "zero_grad": "discards"})";

TEST(orderings, of_right_wrappers_are_right) {
  for (const Reduces when : {Reduces::in_step, Reduces::at_the_last_backward, Reduces::at_every_backward})
    EXPECT_THAT(check_orderings(averaging(discards), runtime({when}), {.seed = 3, .cases = 12}), LosesNothing());
  EXPECT_THAT(check_orderings(averaging(), gradledger::ranks<Syncing>("syncing", Kind{}), {.cases = 12}), LosesNothing());
  EXPECT_THAT(check_orderings(averaging(), gradledger::ranks<Bounded>("bounded", Kind{}), {.cases = 12}), LosesNothing());
  EXPECT_THAT(check_orderings(averaging(R"("contract": {"divide_by": 4, "window": "marked"})"), gradledger::ranks<Counting>("counting", Kind{}), {.cases = 12}), LosesNothing());
  EXPECT_THAT(check_orderings(averaging(R"("contract": {})"), runtime({.micro_batches = 0}), {.cases = 12}), LosesNothing());
  EXPECT_THAT(check_orderings(averaging(), gradledger::world<Together>("together", Defect::none), {.cases = 12}), LosesNothing());
}

TEST(an_exploration, is_complete_where_all_is_right) {
  const OrderingsReport two = explore_orderings(averaging(R"("contract": {"divide_by": 2})"), runtime({.micro_batches = 2}), 6);
  EXPECT_THAT(two, LosesNothing());
  EXPECT_TRUE(two.complete);
  EXPECT_EQ(two.tried, 3u) << "one window, one with zero_grad behind it, and two: what is not closed is no script of the contract: " << two;
  EXPECT_THAT(explore_orderings(averaging(R"("contract": {"divide_by": 2})"), gradledger::ranks<Bounded>("bounded", Kind{.micro_batches = 2}), 8), LosesNothing());
}

TEST(a_failure, is_as_small_as_it_gets) {
  const OrderingsReport found = check_orderings(averaging(), runtime({Reduces::at_the_last_backward, Defect::last_stays_local}), {.cases = 20});
  ASSERT_THAT(found, HasFinding("missing-reduction").micro_batch(3));
  ASSERT_EQ(found.failures.size(), 1u) << found;
  const gradledger::Failure& failure = found.failures[0];
  EXPECT_TRUE(failure.minimal);
  EXPECT_EQ(failure.scenario.script(), "2 ranks: backwardx4 step") << "one rank would average over itself";
  EXPECT_THAT(run(failure.scenario, runtime({Reduces::at_the_last_backward, Defect::last_stays_local})), HasFinding("missing-reduction", 1, 3));
}

TEST(a_failure, of_a_later_window_keeps_the_windows_before_it) {
  const OrderingsReport found = check_orderings(averaging(), runtime({Reduces::in_step, Defect::forgets_on_the_third_window}), {.cases = 20});
  ASSERT_THAT(found, HasFinding("discarded-gradient").step(2));
  EXPECT_EQ(found.failures[0].scenario.script(), "1 rank: backwardx4 step backwardx4 step backwardx4 step");
}

TEST(zero_grad, is_tried_in_a_window_only_where_the_contract_says_what_it_does) {
  const auto keeps = runtime({Reduces::in_step, Defect::keeps_what_zero_grad_drops});
  EXPECT_THAT(check_orderings(averaging(), keeps, {.cases = 20}), LosesNothing());
  const OrderingsReport found = check_orderings(averaging(discards), keeps, {.cases = 20});
  ASSERT_THAT(found, HasFinding("stale-gradient"));
  EXPECT_EQ(found.failures[0].scenario.script(), "1 rank: backward optimizer.zero_grad backwardx4 step");
}

TEST(no_sync, is_tried_where_the_wrapper_has_it_and_never_around_the_last_micro_batch) {
  const auto loses = gradledger::ranks<Syncing>("syncing", Kind{Reduces::in_step, Defect::loses_what_is_not_synced});
  const OrderingsReport found = check_orderings(averaging(), loses, {.cases = 20});
  ASSERT_THAT(found, HasFinding("discarded-gradient"));
  EXPECT_NE(found.failures[0].scenario.script().find("no_sync{ backward }"), std::string::npos) << found;
  for (const gradledger::Contribution& c : found.failures[0].report.findings[0].contributions) EXPECT_LT(c.micro_batch, 3u);
}

TEST(windows, are_as_long_as_the_contract_says_or_the_test) {
  const auto four = runtime();
  EXPECT_FALSE(check_orderings(averaging(R"("contract": {})"), four, {.cases = 10}).clean()) << "nothing divides by 4 there";
  EXPECT_THAT(check_orderings(averaging(), four, {.cases = 10, .micro_batches = {4}}), LosesNothing());
}

TEST(a_search, can_be_repeated) {
  const auto text_of = [](std::uint64_t seed) {
    std::ostringstream out;
    out << check_orderings(averaging(discards), runtime({Reduces::in_step, Defect::keeps_what_zero_grad_drops}), {.seed = seed, .cases = 6});
    return out.str();
  };
  EXPECT_EQ(text_of(5), text_of(5));
  EXPECT_NE(text_of(5), text_of(6));
}

enum class Says { std_error, not_supported };

// Cannot be made for one rank, and says so in one of two ways.
class NotAlone final : public Runtime {
 public:
  NotAlone(const gradledger::Configuration& configuration, gradledger::Communicator& ranks, Says says) : Runtime(configuration, ranks, {}) {
    if (ranks.world_size() > 1) return;
    if (says == Says::not_supported) throw gradledger::NotSupported("two ranks or more");
    throw std::length_error("no neighbour");
  }
};

TEST(a_wrapper, that_throws_when_it_is_made_for_a_smaller_world_has_failed) {
  const OrderingsReport found = check_orderings(averaging(), gradledger::ranks<NotAlone>("not-alone", Says::std_error), {.cases = 20});
  ASSERT_THAT(found, HasFinding("engine-error"));
  EXPECT_EQ(found.failures[0].scenario.script(), "1 rank: backwardx4 step");
  EXPECT_NE(found.failures[0].report.text.find("std::length_error: no neighbour"), std::string::npos) << found;
  EXPECT_EQ(found.refused, 0u);
}

TEST(a_wrapper, that_supports_no_smaller_world_is_not_judged_in_one_and_that_is_counted) {
  const OrderingsReport found = check_orderings(averaging(), gradledger::ranks<NotAlone>("not-alone", Says::not_supported), {.cases = 20});
  EXPECT_THAT(found, LosesNothing());
  EXPECT_GT(found.refused, 0u);
  EXPECT_EQ(found.tried + found.refused + found.not_judged, 20u);
  std::ostringstream text;
  text << found;
  EXPECT_NE(text.str().find("; " + std::to_string(found.refused) + " were refused"), std::string::npos) << found;
}

// Has a limit of its own on events.
class Tiring final : public Runtime {
 public:
  Tiring(const gradledger::Configuration& configuration, gradledger::Communicator& ranks) : Runtime(configuration, ranks, {.micro_batches = 2}) {}

  void backward(const gradledger::Backward& backward) override {
    if (windows_ > 0) throw gradledger::NotSupported("one window alone");
    Runtime::backward(backward);
  }
};

TEST(an_exploration, is_not_complete_where_a_script_was_refused) {
  const OrderingsReport found = explore_orderings(averaging(R"("contract": {"divide_by": 2})"), gradledger::ranks<Tiring>("tiring"), 6);
  EXPECT_THAT(found, LosesNothing());
  EXPECT_EQ(found.tried, 2u);
  EXPECT_EQ(found.refused, 1u);
  EXPECT_FALSE(found.complete);
}

template <class NoVerdict, class Call>
std::string refusal_of(Call&& call) {
  try {
    call();
  } catch (const NoVerdict& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(a_search, of_too_much_is_refused_with_the_limit) {
  const auto expect_says = [](const std::string& text, const std::string& what) { EXPECT_NE(text.find(what), std::string::npos) << text; };
  const auto refused = [](const gradledger::Orderings& asked) { return refusal_of<gradledger::BadInput>([&] { check_orderings(averaging(), runtime(), asked); }); };
  expect_says(refused({.micro_batches = {4, 5000}}), "Orderings::micro_batches: 5000 micro-batches in a window; expected at most 4096");
  expect_says(refused({.windows_max = 1025}), "Orderings::windows_max is 1025; expected a number from 1 to 1024");
  expect_says(refusal_of<gradledger::BadInput>([] { check_orderings(averaging(R"("contract": {"divide_by": 100000})"), runtime()); }), "/contract/divide_by: 100000");
  const auto syncing = gradledger::ranks<Syncing>("syncing", Kind{});
  expect_says(refusal_of<gradledger::BadInput>([&] { explore_orderings(averaging(), syncing, 60, {.micro_batches = {40}}); }), "events_max is 60: more than 1048576 sequences");
}

TEST(a_search, in_which_a_run_breaks_says_by_which_script) {
  const auto breaks = runtime({Reduces::in_step, Defect::shows_what_is_not_there});
  const std::string text = refusal_of<gradledger::BrokenRun>([&] { check_orderings(averaging(), breaks, {.seed = 7, .cases = 3}); });
  EXPECT_NE(text.find("in script 0 drawn from seed 7: 2 ranks: backward"), std::string::npos) << text;
}

TEST(a_search, that_judges_nothing_is_refused) {
  EXPECT_THROW(check_orderings(averaging(), runtime(), {.cases = 0}), gradledger::BadInput);
  EXPECT_THROW(check_orderings(averaging(), runtime(), {.micro_batches = {0}}), gradledger::BadInput);
  EXPECT_THROW(check_orderings(averaging(), runtime(), {.windows_max = 0}), gradledger::BadInput);
  EXPECT_THROW(explore_orderings(averaging(), runtime(), 4), gradledger::BadInput) << "a window takes five";
  EXPECT_THROW(check_orderings(averaging(R"("engine": {"framework": "ddp", "config": {}})"), runtime()), gradledger::NotRun);
}

}  // namespace
}  // namespace library_test
