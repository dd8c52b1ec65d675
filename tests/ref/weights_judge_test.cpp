// Weights as a producer shows them, changed on their way to the judge: every kind of piece, and what the verdict makes of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>

#include "ref/weights_judge.h"
#include "tests/support/loops.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

using Set = std::set<std::string>;
using Pieces = std::vector<WeightPiece>;
using TamperWeights = std::function<void(const WeightObservation&, Pieces&)>;
using Held = WeightPiece::Held;

// Forms of a run are numbered from 0 on; these are none of them.
constexpr std::uint64_t made_up_form = std::uint64_t{1} << 40;

class TamperingWeights final : public Producer {
 public:
  TamperingWeights(const Scenario& scenario, const Timeline& timeline, TamperWeights tamper) : inner_(scenario, timeline), tamper_(std::move(tamper)) {}

  std::string_view name() const override { return "tampering"; }
  Capabilities capabilities() const override { return inner_.capabilities(); }
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override {
    if (!options.weights) return inner_.run(source, options, sink);
    Sink tampered(tamper_, sink);
    return inner_.run(source, options, tampered);
  }

 private:
  class Sink final : public TraceSink {
   public:
    Sink(const TamperWeights& tamper, TraceSink& to) : tamper_(tamper), to_(to) {}
    void weights(const WeightObservation& o) override {
      Pieces pieces(o.pieces.begin(), o.pieces.end());
      tamper_(o, pieces);
      WeightObservation changed = o;
      changed.pieces = pieces;
      to_.weights(changed);
    }
    void event_done(std::uint32_t rank, std::uint32_t event) override { to_.event_done(rank, event); }

   private:
    const TamperWeights& tamper_;
    TraceSink& to_;
  };

  HostExecutor inner_;
  TamperWeights tamper_;
};

ref::Verdict judge_weights(const Scenario& scenario, TamperWeights tamper, bool full_ledger = false) {
  const Timeline timeline = make_timeline(scenario).value();
  TamperingWeights producer(scenario, timeline, std::move(tamper));
  ref::OracleOptions options;
  options.full_ledger = full_ledger;
  ref::Verdict out = ref::judge(scenario, timeline, producer, options);
  EXPECT_TRUE(out.weights);
  return out;
}

std::uint32_t step_of(const Scenario& s, std::uint32_t event) { return make_timeline(s)->events[event].step; }

// Changes what rank 0 applies in step 1.
ref::Verdict judge_applied(const Scenario& s, const std::function<void(Pieces&)>& change, bool full_ledger = false) {
  return judge_weights(
      s,
      [&](const WeightObservation& o, Pieces& pieces) {
        if (o.role == Role::applied_gradient && o.rank == 0 && step_of(s, o.event) == 1) change(pieces);
      },
      full_ledger);
}

const ref::LedgerRow& row_of(const ref::Verdict& verdict, std::uint32_t step, std::uint32_t rank, std::uint32_t parameter, std::uint32_t element) {
  for (const ref::AppliedRow& row : verdict.applied)
    for (const ref::ElementRange& e : row.row.elements)
      if (row.step == step && row.rank == rank && e.parameter == parameter && e.begin <= element && element < e.end) return row.row;
  ADD_FAILURE() << "no row of parameter " << parameter << "[" << element << "]";
  return verdict.applied.front().row;
}

// The first `numel` elements of a piece as one of their own.
WeightPiece& cut_off(Pieces& pieces, std::uint64_t numel) {
  WeightPiece rest = pieces.front();
  pieces.front().numel = numel;
  rest.parameter_offset += numel;
  rest.numel -= numel;
  pieces.insert(pieces.begin() + 1, rest);
  return pieces.front();
}

TEST(weights_that_are_shown, balance_where_nobody_lies) {
  const ref::Verdict verdict = judge_applied(honest(), [](Pieces& pieces) { cut_off(pieces, 3); });
  EXPECT_EQ(classes(verdict), Set{}) << sentences(verdict);
  EXPECT_GT(verdict.ledger.elements, 0u);
  EXPECT_EQ(verdict.ledger.inconclusive, 0u);
  EXPECT_EQ(verdict.inconclusive_rows.total(), 0u);
}

TEST(weights_that_are_shown, are_inconclusive_and_no_finding_where_they_are_untold) {
  const Scenario s = honest();
  for (const bool full_ledger : {false, true}) {
    const ref::Verdict verdict = judge_applied(
        s, [](Pieces& pieces) { cut_off(pieces, 3).held = Held::untold; }, full_ledger);
    EXPECT_EQ(classes(verdict), Set{}) << sentences(verdict);
    EXPECT_EQ(verdict.ledger.inconclusive, 3u);
    EXPECT_EQ(verdict.inconclusive_rows.by_reason[static_cast<std::size_t>(ref::NotTold::symbolic)], 1u);
    EXPECT_EQ(verdict.inconclusive_rows.total(), 1u);
    EXPECT_EQ(row_of(verdict, 1, 0, 0, 0).inconclusive, ref::NotTold::symbolic);
    EXPECT_EQ(row_of(verdict, 1, 0, 0, 3).inconclusive, std::nullopt);
    EXPECT_EQ(verdict.coverage.windows_judged, 2u) << "of the other elements";
  }
}

TEST(weights_that_are_shown, judge_no_window_where_all_of_them_are_untold) {
  const Scenario s = honest();
  const ref::Verdict verdict = judge_weights(s, [&](const WeightObservation& o, Pieces& pieces) {
    if (o.role == Role::applied_gradient && step_of(s, o.event) == 1)
      for (WeightPiece& piece : pieces) piece.held = Held::untold;
  });
  EXPECT_EQ(classes(verdict), Set{}) << sentences(verdict);
  EXPECT_EQ(verdict.coverage.windows_closed, 2u);
  EXPECT_EQ(verdict.coverage.windows_judged, 1u);
}

// A second step without a backward applies what the first one left: nothing of it is due, and no contribution of the window could say that it is untold.
TEST(weights_that_are_shown, are_inconclusive_where_they_are_untold_and_nothing_is_due) {
  const auto s = read_scenario(loop_around("ddp", R"([{"backward": {}}, {"step": {}}, {"step": {}}])").dump(), ".");
  ASSERT_TRUE(s) << s.error().text();
  std::size_t changed = 0;
  const ref::Verdict verdict = judge_weights(*s, [&](const WeightObservation& o, Pieces& pieces) {
    if (o.role != Role::applied_gradient || step_of(*s, o.event) != 1) return;
    for (WeightPiece& piece : pieces) piece.held = Held::untold;
    changed += pieces.size();
  });
  EXPECT_GT(changed, 0u);
  EXPECT_GT(verdict.inconclusive_rows.by_reason[static_cast<std::size_t>(ref::NotTold::symbolic)], 0u);
}

TEST(weights_that_are_shown, do_not_hide_a_wrong_one_beside_an_untold_one) {
  std::vector<WeightTerm> terms;
  const ref::Verdict verdict = judge_applied(honest(), [&](Pieces& pieces) {
    cut_off(pieces, 3).held = Held::untold;
    WeightPiece& wrong = pieces[1];
    terms.assign(wrong.terms.begin(), wrong.terms.end());
    for (WeightTerm& term : terms) term.weight *= 2;
    wrong.terms = terms;
    wrong.form = made_up_form;
  });
  ASSERT_EQ(classes(verdict), Set{"wrong-scale"}) << sentences(verdict);
  for (const ref::Finding& f : verdict.findings)
    for (const ref::ElementRange& e : f.elements) EXPECT_FALSE(e.parameter == 0 && e.begin < 3) << f.sentence;
}

// That memory is read that nobody wrote is a finding of the run itself; what it leaves in the ledger is no weight.
TEST(weights_that_are_shown, are_no_numbers_where_nobody_wrote) {
  const ref::Verdict verdict = judge_applied(honest(), [](Pieces& pieces) { cut_off(pieces, 3).held = Held::unwritten; });
  ASSERT_FALSE(verdict.findings.empty());
  EXPECT_EQ(verdict.findings.front().elements.front(), (ref::ElementRange{0, 0, 3}));
  EXPECT_EQ(verdict.ledger.inconclusive, 0u);
  const ref::LedgerRow& row = row_of(verdict, 1, 0, 0, 0);
  EXPECT_TRUE(std::all_of(row.observed.begin(), row.observed.end(), [](double weight) { return std::isnan(weight); }));
  EXPECT_EQ(row.inconclusive, std::nullopt);
  const ref::LedgerRow& beside = row_of(verdict, 1, 0, 0, 3);
  EXPECT_EQ(beside.observed, beside.expected);
}

TEST(weights_that_are_shown, are_those_of_memory_that_nobody_wrote_where_a_constant_is_added) {
  const ref::Verdict verdict = judge_applied(honest(), [](Pieces& pieces) { cut_off(pieces, 3).constant = 1; });
  EXPECT_FALSE(verdict.findings.empty());
  EXPECT_TRUE(std::isnan(row_of(verdict, 1, 0, 0, 0).observed.front()));
}

TEST(weights_that_are_shown, are_misplaced_where_they_are_of_other_elements) {
  const ref::Verdict verdict = judge_applied(honest(), [](Pieces& pieces) { cut_off(pieces, 3).shift = 5; });
  ASSERT_EQ(classes(verdict), Set{"misplaced-shard"}) << sentences(verdict);
  EXPECT_EQ(verdict.findings.front().elements, (std::vector<ref::ElementRange>{{0, 0, 3}}));
  const ref::LedgerRow& row = row_of(verdict, 1, 0, 0, 0);
  std::size_t misplaced = 0;
  for (std::size_t k = 0; k < row.observed.size(); ++k) {
    EXPECT_EQ(row.misplaced_at(k), row.expected[k] != 0);
    EXPECT_EQ(row.observed[k], 0) << "of their own the elements have nothing";
    misplaced += row.misplaced_at(k);
  }
  EXPECT_EQ(misplaced, 8u) << "four micro-batches on each of two ranks";
  EXPECT_FALSE(row_of(verdict, 1, 0, 0, 3).any_misplaced());
}

// Contributions of one element and of several others, in stretches that overlap: each is in the ledger, whichever stretch comes first.
TEST(weights_that_are_shown, are_misplaced_whatever_their_stretches_have_in_common) {
  const Scenario s = honest(Dtype::bfloat16, 4);
  std::vector<std::uint32_t> backwards;
  const Timeline timeline = make_timeline(s).value();
  for (std::uint32_t b = 0; b < timeline.backwards.size(); ++b)
    if (timeline.backwards[b].step == 1) backwards.push_back(b);
  ASSERT_EQ(backwards.size(), 4u);
  const std::uint32_t b = backwards[0];
  // The first micro-batch of all ranks from one element away, and of rank 1 from two and three as well, which cancel each other as numbers only. The fourth one of
  // rank 0 in its place, and of the others from one element away.
  const Rational due(1, 16);
  const std::vector<WeightTerm> terms{{b, b + 1, 0, 4, 1, due},     {b, b + 1, 1, 2, 2, due},     {b, b + 1, 1, 2, 3, -due},
                                      {b + 1, b + 3, 0, 4, 0, due}, {b + 3, b + 4, 1, 4, 1, due}, {b + 3, b + 4, 0, 1, 0, due}};
  const ref::Verdict verdict = judge_applied(s, [&](Pieces& pieces) {
    WeightPiece& piece = cut_off(pieces, 1);
    piece.terms = terms;
    piece.form = made_up_form;
  });
  ASSERT_EQ(classes(verdict), Set{"misplaced-shard"}) << sentences(verdict);
  const ref::AppliedRow* found = nullptr;
  for (const ref::AppliedRow& row : verdict.applied)
    if (row.row.any_misplaced()) found = &row;
  ASSERT_TRUE(found);
  std::set<std::pair<std::uint32_t, std::uint32_t>> misplaced;  // rank, micro-batch
  for (std::size_t k = 0; k < found->columns.size(); ++k) {
    if (found->row.misplaced_at(k)) misplaced.emplace(found->columns[k].rank, found->columns[k].micro_batch);
    EXPECT_EQ(found->row.observed[k], found->row.misplaced_at(k) ? 0.0 : found->row.expected[k]);
  }
  EXPECT_EQ(misplaced, (std::set<std::pair<std::uint32_t, std::uint32_t>>{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {1, 3}, {2, 3}, {3, 3}}));
}

// Numbers cannot see past what is planted; weights can.
TEST(weights_that_are_shown, are_judged_in_elements_with_a_planted_value_too) {
  Scenario s = base_scenario(2, {30, 21, 13}, Dtype::float16);
  deepspeed_config(s).gradient_accumulation_steps = 2;
  deepspeed_config(s).fp16.initial_scale_power = 4;
  deepspeed_config(s).zero.stage = 2;
  ScriptItem overflow = event(ScriptKind::overflow);
  overflow.ranks = {0};
  overflow.micro_batch = 1;
  s.script = {overflow, repeat(2, managed(2))};
  EXPECT_EQ(classes(judge_weights(s, [](const WeightObservation&, Pieces&) {})), Set{});
  std::deque<std::vector<WeightTerm>> kept;
  const ref::Verdict verdict = judge_weights(s, [&](const WeightObservation& o, Pieces& pieces) {
    if (o.role != Role::reduced_accumulator || o.rank != 0 || step_of(s, o.event) != 0) return;
    for (WeightPiece& piece : pieces) {
      if (piece.parameter != 0 || piece.parameter_offset != 0 || piece.held != Held::weights || piece.terms.empty()) continue;
      std::vector<WeightTerm>& terms = kept.emplace_back(piece.terms.begin(), piece.terms.end());
      for (WeightTerm& term : terms) term.weight *= 2;
      piece.terms = terms;
      piece.form = made_up_form + kept.size();
    }
  });
  ASSERT_FALSE(kept.empty());
  ASSERT_EQ(classes(verdict), Set{"wrong-scale"}) << sentences(verdict);
  EXPECT_EQ(verdict.findings.front().step, 0u);
  EXPECT_EQ(verdict.findings.front().elements.front().begin, 0u) << "where the script plants it";
  EXPECT_EQ(verdict.inconclusive_rows.total(), 0u);
}

}  // namespace
}  // namespace gradledger::testing
