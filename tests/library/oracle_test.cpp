// Wrappers in this process: what the library says of right ones and of wrong ones.
#include <set>

#include <gtest/gtest-spi.h>

#include "gradledger/testing.h"
#include "tests/library/runtime.h"

namespace library_test {
namespace {

using gradledger::Report;
using gradledger::run;
using gradledger::testing::HasFinding;
using gradledger::testing::LosesNothing;

TEST(a_right_wrapper, is_clean_whenever_it_reduces) {
  for (const Reduces when : {Reduces::in_step, Reduces::at_the_last_backward, Reduces::at_every_backward}) {
    const Report report = run(averaging(), runtime({when}));
    EXPECT_THAT(report, LosesNothing());
    EXPECT_EQ(report.coverage.windows_judged, 2u);
    EXPECT_GE(report.coverage.judged, 8u) << "two parameters of two ranks in two steps";
  }
}

TEST(a_right_wrapper, is_clean_by_the_contract_that_it_has) {
  const std::string marked = R"({"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {"update": true}})";
  EXPECT_THAT(run(averaging(R"("contract": {"divide_by": 4, "window": "marked"})", marked), gradledger::ranks<Counting>("counting", Kind{})), LosesNothing());
  EXPECT_THAT(run(averaging(R"("contract": {"divide_by": 3})", R"({"backward": {"micro_batches": 3}}, {"step": {}})"), runtime({.micro_batches = 3})), LosesNothing());
  EXPECT_THAT(run(averaging(R"("contract": {})", R"({"backward": {"micro_batches": 5}}, {"step": {}})"), runtime({.micro_batches = 0})), LosesNothing());
  EXPECT_THAT(run(averaging(R"("model_dtype": "bf16", "contract": {"divide_by": 4})"), runtime()), LosesNothing());
  EXPECT_THAT(run(averaging(), gradledger::ranks<PlainSums>("plain-sums", Kind{.micro_batches = 0})), LosesNothing());
  const std::string synced = R"({"no_sync": [{"backward": {"micro_batches": 3}}]}, {"backward": {}}, {"step": {}})";
  EXPECT_THAT(run(averaging(R"("contract": {"divide_by": 4})", synced), gradledger::ranks<Syncing>("syncing", Kind{})), LosesNothing());
}

TEST(a_counting_wrapper, that_updates_too_soon_is_reported) {
  const std::string marked = R"({"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {"update": true}})";
  const Report report = run(averaging(R"("contract": {"divide_by": 2, "window": "marked"})", marked), gradledger::ranks<Counting>("counting", Kind{.micro_batches = 1}));
  EXPECT_FALSE(report.clean()) << "every step updates";
}

TEST(the_ledger, has_each_contribution_with_its_weight) {
  const Report report = run(averaging(), runtime());
  std::size_t due = 0;
  for (const gradledger::LedgerRow& row : report.ledger)
    for (const gradledger::Contribution& c : row.contributions) {
      due += c.step == row.step;
      EXPECT_EQ(c.observed, c.step == row.step ? 0.125 : 0) << report;
    }
  EXPECT_GE(due, 2u * 2 * 8) << "two windows, two ranks, eight contributions";
  EXPECT_NE(report.text.find("1/8"), std::string::npos) << report;
  EXPECT_NE(report.json.find(R"("record":"replay")"), std::string::npos) << report.json;
}

TEST(a_defect, is_reported_with_its_class_its_rank_and_its_micro_batches) {
  const auto report_of = [](Defect defect) { return run(averaging(), runtime({Reduces::at_the_last_backward, defect})); };
  for (const std::uint32_t rank : {0u, 1u}) {
    EXPECT_THAT(report_of(Defect::last_stays_local), HasFinding("missing-reduction", rank, 3));
    EXPECT_THAT(report_of(Defect::forgets_the_first), HasFinding("discarded-gradient", rank, 0));
    EXPECT_THAT(report_of(Defect::counts_twice), HasFinding("duplicated-gradient", rank, 3));
    EXPECT_THAT(report_of(Defect::divides_once_too_often), HasFinding("wrong-scale", rank, 2));
  }
  const Report kept = report_of(Defect::keeps_to_itself);
  ASSERT_THAT(kept, HasFinding("missing-reduction"));
  for (const gradledger::Finding& finding : kept.findings) {
    EXPECT_EQ(finding.elements.at(0).parameter, "w0") << "w1 is averaged";
    EXPECT_EQ(finding.lost_weight, 0.5) << finding.sentence;
    EXPECT_EQ(finding.pointer, "/script/0/repeat/of/1");
  }
}

TEST(a_defect, is_not_reported_where_it_is_not) {
  const Report report = run(averaging(), runtime({Reduces::at_the_last_backward, Defect::forgets_the_first}));
  std::set<std::uint32_t> named;
  for (const gradledger::Finding& finding : report.findings)
    for (const gradledger::Contribution& c : finding.contributions) named.insert(c.micro_batch);
  EXPECT_EQ(named, std::set<std::uint32_t>{0});
  EXPECT_FALSE(HasFinding("discarded-gradient").micro_batch(1).MatchAndExplain(report, nullptr));
  EXPECT_FALSE(HasFinding("missing-reduction").MatchAndExplain(report, nullptr));
}

TEST(what_a_wrapper_throws, is_a_finding_with_its_type_and_text) {
  const Report report = run(averaging(), runtime({Reduces::in_step, Defect::raises}));
  ASSERT_THAT(report, HasFinding("engine-error").rank(1));
  EXPECT_NE(report.text.find("std::out_of_range"), std::string::npos) << report;
  EXPECT_NE(report.text.find("no such bucket"), std::string::npos) << report;
  EXPECT_THAT(run(averaging(), gradledger::world<Together>("together", Defect::raises)), HasFinding("engine-error"));
}

TEST(ranks, that_make_calls_that_do_not_fit_are_named_with_their_places) {
  const Report report = run(averaging(), runtime({Reduces::in_step, Defect::calls_less}));
  ASSERT_THAT(report, HasFinding("collective-mismatch"));
  const std::size_t first = report.text.find("runtime.h:");
  EXPECT_NE(first, std::string::npos) << report;
  EXPECT_NE(report.text.find("of 5 fp32"), std::string::npos) << report;
}

TEST(a_black_box, is_judged_by_its_weights) {
  EXPECT_THAT(run(averaging(), gradledger::ranks<Closed>("closed", Kind{})), LosesNothing());
  EXPECT_THAT(run(averaging(), gradledger::ranks<Closed>("closed", Kind{Reduces::in_step, Defect::forgets_the_first})), HasFinding("discarded-gradient").micro_batch(0));
}

TEST(a_world, is_judged_like_ranks) {
  EXPECT_THAT(run(averaging(), gradledger::world<Together>("together", Defect::none)), LosesNothing());
  const Report report = run(averaging(), gradledger::world<Together>("together", Defect::keeps_to_itself));
  ASSERT_FALSE(report.findings.empty());
  for (const gradledger::Finding& finding : report.findings)
    for (const gradledger::Contribution& c : finding.contributions) EXPECT_EQ(c.rank, 1u) << "whose sums nobody counts: " << finding.sentence;
}

TEST(a_run, can_be_repeated_and_its_order_of_ranks_changes_no_verdict) {
  const auto text_of = [](std::uint64_t seed) { return run(averaging(), runtime({Reduces::at_the_last_backward, Defect::last_stays_local}), {.seed = seed}).text; };
  EXPECT_EQ(text_of(1), text_of(1));
  for (const std::uint64_t seed : {2, 3, 4}) EXPECT_THAT(run(averaging(), runtime({Reduces::at_every_backward}), {.seed = seed}), LosesNothing());
}

TEST(a_matcher, says_what_was_expected_and_shows_the_report) {
  static const Report wrong = run(averaging(), runtime({Reduces::in_step, Defect::counts_twice})), right = run(averaging(), runtime());
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(wrong, LosesNothing()), "Expected: loses nothing");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(wrong, LosesNothing()), "[1/4 for 1/8]");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(right, HasFinding("missing-reduction", 1, 2)), "has a finding missing-reduction on rank 1 that names micro-batch 2");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(wrong, HasFinding("duplicated-gradient").step(2)), "has a finding duplicated-gradient of step 2");
}

// ---- no verdict -----------------------------------------------------------------------------------------------------------------------------

template <class NoVerdict, class Call>
std::string text_of(Call&& call) {
  try {
    call();
  } catch (const NoVerdict& error) {
    return error.what();
  }
  return "nothing was thrown";
}

void expect_says(const std::string& text, const std::string& what) { EXPECT_NE(text.find(what), std::string::npos) << text; }

TEST(a_scenario, with_mistakes_is_refused_with_the_place_of_each) {
  const std::string text = text_of<gradledger::BadInput>([] { gradledger::Scenario(averaging(R"("world_sise": 3, "contract": {"divide_by": "many"})")); });
  expect_says(text, "/world_sise");
  expect_says(text, "/contract/divide_by");
  expect_says(text_of<gradledger::BadInput>([] { gradledger::Scenario("{"); }), "line 1");
  expect_says(text_of<gradledger::BadInput>([] { gradledger::Scenario::load("/nowhere/scenario.json"); }), "/nowhere/scenario.json");
}

TEST(a_scenario, says_what_it_is_in_the_form_of_files) {
  const gradledger::Scenario scenario = averaging();
  EXPECT_EQ(scenario.name(), "averaging");
  EXPECT_EQ(scenario.world_size(), 2u);
  EXPECT_EQ(scenario.script(), "2 ranks: 2x{ backwardx4 step }");
  EXPECT_EQ(gradledger::Scenario(scenario.json()).json(), scenario.json());
}

TEST(a_scenario, of_what_the_wrapper_has_not_is_not_run) {
  const auto refused = [](const std::string& window) { return text_of<gradledger::NotRun>([&] { run(averaging(R"("contract": {"divide_by": 4})", window), runtime()); }); };
  expect_says(refused(R"({"no_sync": [{"backward": {}}]}, {"step": {}})"), "enter_no_sync");
  expect_says(refused(R"({"backward": {"phases": 2}}, {"step": {}})"), "phases");
  expect_says(text_of<gradledger::NotRun>([] { run(averaging(R"("engine": {"framework": "ddp", "config": {}})"), runtime()); }), "serves external");
}

class Choosy : public Runtime {
 public:
  Choosy(const gradledger::Configuration& configuration, gradledger::Communicator& ranks) : Runtime(configuration, ranks, {}) {
    throw std::invalid_argument("needs a bucket size");
  }
};

TEST(a_wrapper, that_does_not_take_the_configuration_is_not_run) {
  expect_says(text_of<gradledger::NotRun>([] { run(averaging(), gradledger::ranks<Choosy>("choosy")); }), "needs a bucket size");
}

TEST(a_wrapper, that_shows_what_is_not_there_breaks_the_run) {
  expect_says(text_of<gradledger::BrokenRun>([] { run(averaging(), runtime({Reduces::in_step, Defect::shows_what_is_not_there})); }), "is 99, which is no parameter");
}

TEST(a_run, that_judges_nothing_or_takes_too_much_is_refused) {
  expect_says(text_of<gradledger::BadInput>([] { run(averaging(R"("contract": {"divide_by": 4})", R"({"zero_grad": "optimizer"})"), runtime()); }), "nothing was judged");
  expect_says(text_of<gradledger::BadInput>([] { run(averaging(), runtime(), {.memory_limit = 1000}); }), "memory_limit");
  expect_says(text_of<gradledger::BadInput>([] { run(averaging(), runtime(), {.headers = "0.0.9"}); }), "0.0.9");
  EXPECT_EQ(gradledger::version(), GRADLEDGER_VERSION);
}

}  // namespace
}  // namespace library_test
