// Matchers for GoogleTest: EXPECT_THAT(run(scenario, wrapper), LosesNothing()). Without GoogleMock EXPECT_THAT is here.
// Include it behind every other header that defines EXPECT_THAT or ASSERT_THAT: it leaves theirs, and one that comes later would define them twice.
#pragma once

#include <algorithm>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#if __has_include(<gmock/gmock-matchers.h>)
#include <gmock/gmock-matchers.h>
#endif

#include "gradledger/oracle.h"
#include "gradledger/orderings.h"

namespace gradledger::GRADLEDGER_API {
namespace testing {

// Nothing is wrong, and something was judged. Of a Report and of an OrderingsReport.
class LosesNothingMatcher {
 public:
  using is_gtest_matcher = void;

  template <class Judged>
  bool MatchAndExplain(const Judged& judged, std::ostream*) const {
    return judged.clean();
  }
  void DescribeTo(std::ostream* out) const { *out << "loses nothing"; }
  void DescribeNegationTo(std::ostream* out) const { *out << "loses something"; }
};
inline LosesNothingMatcher LosesNothing() { return {}; }

// A finding of the class; with `rank` and `micro_batch` one that was seen on that rank, and that names that micro-batch of any rank.
class FindingMatcher {
 public:
  using is_gtest_matcher = void;

  explicit FindingMatcher(std::string finding_class) : finding_class_(std::move(finding_class)) {}

  FindingMatcher rank(std::uint32_t rank) const { return with(&FindingMatcher::rank_, rank); }
  FindingMatcher step(std::uint32_t step) const { return with(&FindingMatcher::step_, step); }
  FindingMatcher micro_batch(std::uint32_t micro_batch) const { return with(&FindingMatcher::micro_batch_, micro_batch); }

  bool MatchAndExplain(const Report& report, std::ostream*) const {
    return std::any_of(report.findings.begin(), report.findings.end(), [this](const Finding& finding) { return holds(finding); });
  }
  // Of all failures together.
  bool MatchAndExplain(const OrderingsReport& orderings, std::ostream* out) const {
    return std::any_of(orderings.failures.begin(), orderings.failures.end(), [&](const Failure& failure) { return MatchAndExplain(failure.report, out); });
  }
  void DescribeTo(std::ostream* out) const { *out << "has a finding " << described(); }
  void DescribeNegationTo(std::ostream* out) const { *out << "has no finding " << described(); }

 private:
  using Number = std::optional<std::uint32_t>;

  FindingMatcher with(Number FindingMatcher::*which, std::uint32_t value) const {
    FindingMatcher out = *this;
    out.*which = value;
    return out;
  }
  bool holds(const Finding& finding) const {
    const auto named = [this](const Contribution& contribution) { return contribution.micro_batch == *micro_batch_; };
    return finding.finding_class == finding_class_ && (!rank_ || finding.rank == *rank_) && (!step_ || finding.step == *step_) &&
           (!micro_batch_ || std::any_of(finding.contributions.begin(), finding.contributions.end(), named));
  }
  std::string described() const {
    std::string out = finding_class_;
    if (step_) out += " of step " + std::to_string(*step_);
    if (rank_) out += " on rank " + std::to_string(*rank_);
    if (micro_batch_) out += " that names micro-batch " + std::to_string(*micro_batch_);
    return out;
  }

  std::string finding_class_;
  Number rank_, step_, micro_batch_;
};
inline FindingMatcher HasFinding(std::string finding_class) { return FindingMatcher(std::move(finding_class)); }
inline FindingMatcher HasFinding(std::string finding_class, std::uint32_t rank, std::uint32_t micro_batch) {
  return FindingMatcher(std::move(finding_class)).rank(rank).micro_batch(micro_batch);
}

// As EXPECT_THAT of GoogleMock, for these matchers and GoogleTest's own.
template <class Matcher>
auto fits(Matcher matcher) {
  return [matcher = std::move(matcher)](const char* expression, const auto& value) {
    if (matcher.MatchAndExplain(value, nullptr)) return ::testing::AssertionSuccess();
    ::testing::AssertionResult out = ::testing::AssertionFailure();
    std::stringstream expected, seen;
    matcher.DescribeTo(&expected);
    seen << value;
    return out << "Value of: " << expression << "\nExpected: " << expected.str() << "\n  Actual:\n" << seen.str();
  };
}

}  // namespace testing
}  // namespace gradledger::GRADLEDGER_API

#ifndef EXPECT_THAT
#define EXPECT_THAT(value, matcher) EXPECT_PRED_FORMAT1(::gradledger::testing::fits(matcher), value)
#define ASSERT_THAT(value, matcher) ASSERT_PRED_FORMAT1(::gradledger::testing::fits(matcher), value)
#endif
