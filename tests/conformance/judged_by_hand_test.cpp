// Recordings that lose something must be told from those that do not, by their numbers alone.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include <fmt/format.h>

#include "ref/describe.h"
#include "sim/load.h"
#include "tests/conformance/judged.h"
#include "tests/conformance/recordings.h"

namespace gradledger::conform {
namespace {

using ref::FindingClass;

Judged judged(const RecordedRun& run) { return judge_alone(run); }

std::set<std::string> classes_of(const Judged& judged) {
  std::set<std::string> out;
  for (const ref::Finding& f : judged.verdict.findings) out.insert(std::string(ref::name_of(f.finding)));
  return out;
}

// ---- written by hand --------------------------------------------------------------------------------------------------------------------

constexpr std::uint32_t micro_batches = 5, elements = 12;

// Two ranks, one parameter of twelve elements, five micro-batches a window at stage 0, in fp32. Nothing is recorded but the weights after the update,
// which is by the mean of the micro-batches of both ranks, those left out not added.
RecordedRun written_by_hand(const std::set<std::uint32_t>& left_out) {
  RecordedRun run;
  run.name = "by_hand";
  run.version = "head";
  run.world = 2;
  run.sizes = {elements};
  run.config = {{"train_micro_batch_size_per_gpu", 1}, {"gradient_accumulation_steps", micro_batches}, {"gradient_clipping", 0}};
  run.operations = nlohmann::json::array();
  std::vector<double> sum(elements, 0.0);
  for (std::uint32_t m = 0; m < micro_batches; ++m) {
    run.operations.push_back({"fb", m});
    run.operations.push_back({"step"});
    run.gradients.emplace_back();
    for (std::uint32_t r = 0; r < run.world; ++r) {
      std::vector<double> gradient(elements, 0.0);
      gradient[r * micro_batches + m] = 1;
      gradient[elements - 2] = 3;
      gradient[elements - 1] = r + 1.0;
      for (std::uint32_t e = 0; e < elements && !left_out.contains(m); ++e) sum[e] += gradient[e];
      run.gradients.back().push_back(std::move(gradient));
    }
  }
  for (std::uint32_t r = 0; r < run.world; ++r) {
    std::vector<RecordedMoment> moments(run.operations.size());
    for (std::size_t i = 1; i < moments.size(); i += 2) moments[i].parameters = {std::vector<double>(elements, 0.0)};
    for (std::uint32_t e = 0; e < elements; ++e) moments.back().parameters[0][e] = static_cast<float>(-sum[e] / (run.world * micro_batches));
    run.ranks.push_back(std::move(moments));
  }
  return run;
}

TEST(a_recording_by_hand, that_is_right_is_clean) {
  const Judged right = judged(written_by_hand({}));
  EXPECT_EQ(right.outcome, JudgedAs::clean) << text_of(right);
  EXPECT_EQ(right.verdict.coverage.windows_judged, 1u);
}

TEST(a_recording_by_hand, that_loses_two_fifths_of_the_gradient_is_found_and_says_which) {
  const Judged wrong = judged(written_by_hand({1, 3}));
  EXPECT_EQ(wrong.outcome, JudgedAs::findings);
  EXPECT_EQ(classes_of(wrong), std::set<std::string>{"discarded-gradient"});
  ASSERT_FALSE(wrong.verdict.findings.empty());
  for (const ref::Finding& f : wrong.verdict.findings) {
    EXPECT_EQ(ref::weight_text(f.lost_weight), "2/5") << f.sentence;
    EXPECT_NE(f.sentence.find("micro-batches 1, 3 of ranks 0-1 never reached the step"), std::string::npos) << f.sentence;
  }
}

TEST(a_recording_by_hand, whose_values_no_weights_explain_is_found_and_says_that_it_is_left_open) {
  RecordedRun run = written_by_hand({});
  for (auto& moments : run.ranks) moments.back().parameters[0][elements - 2] += 1;  // every micro-batch has 3 there
  const Judged odd = judged(run);
  EXPECT_EQ(classes_of(odd), std::set<std::string>{"rounding-excess"});
  EXPECT_FALSE(odd.verdict.unexplained.empty());
  EXPECT_NE(odd.verdict.findings.front().sentence.find("which contributions weigh wrong, the values of one run leave open"), std::string::npos)
      << odd.verdict.findings.front().sentence;
}

TEST(a_recording_by_hand, without_weights_behind_its_step_is_not_judged) {
  RecordedRun run = written_by_hand({});
  for (auto& moments : run.ranks)
    for (RecordedMoment& moment : moments) moment.parameters.clear();
  const Judged none = judged(run);
  EXPECT_EQ(none.outcome, JudgedAs::not_judged) << text_of(none);
  EXPECT_EQ(none.why, "no step showed the gradient that it applied");
}

TEST(a_recording_by_hand, whose_ranks_part_is_found) {
  RecordedRun run = written_by_hand({});
  run.ranks[1].back().parameters[0][0] = 0;
  EXPECT_EQ(judged(run).outcome, JudgedAs::findings);
}

// ---- recorded, and altered --------------------------------------------------------------------------------------------------------------

// Takes one contribution out of what an update applied: the last rank's, of the first backward of the window. None where no step of the run updates, or
// it clips, or weights are no powers of two.
std::optional<Contribution> lose_a_contribution(RecordedRun& run) {
  const auto recording = express(run);
  const auto timeline = make_timeline(recording->scenario);
  if (timeline->contract.clip.max_norm > 0) return std::nullopt;
  const auto step = std::find_if(timeline->events.begin(), timeline->events.end(), [](const Event& e) { return e.updates(); });
  const std::uint32_t rank = run.world - 1;
  for (std::uint32_t b = 0; step != timeline->events.end() && b < timeline->backwards.size(); ++b) {
    const Backward& backward = timeline->backwards[b];
    if (backward.step != step->step || timeline->dropped_at[b][rank] != never) continue;
    const std::vector<double>& gradient = (*recording->scenario.gradients.values)[backward.data[rank]][rank];
    const double weight = timeline->averaged_weight(b, rank, rank, Layer::meant);
    int exponent;
    if (std::frexp(weight, &exponent) != 0.5) return std::nullopt;  // what is taken out is then not what rounding has put in
    for (auto& moments : run.ranks)
      for (std::size_t i = static_cast<std::size_t>(step - timeline->events.begin()); i < moments.size(); ++i) {
        std::size_t at = 0;
        for (std::vector<double>& parameter : moments[i].parameters)
          for (double& x : parameter) x += weight * gradient[at++];
      }
    return timeline->contribution(b, rank);
  }
  return std::nullopt;
}

TEST(a_clean_recording, that_loses_one_contribution_of_one_rank_is_found_and_names_it) {
  std::uint64_t altered = 0;
  for (const char* file : {"stages_1_to_3", "cpu_offload", "bf16_optimizer"})
    for (RecordedRun& run : runs_of(file)) {
      if (judged(run).outcome != JudgedAs::clean) continue;
      const auto lost = lose_a_contribution(run);
      if (!lost) continue;
      ++altered;
      const Judged without = judged(run);
      bool named = false;
      for (const ref::Finding& f : without.verdict.findings) {
        if (f.step != lost->step) continue;
        EXPECT_TRUE(f.finding == FindingClass::discarded_gradient || f.finding == FindingClass::offload_loss) << f.sentence;
        for (const ref::Miscounted& m : f.contributions) {
          named = named || m.contribution == *lost;
          EXPECT_TRUE(m.contribution == *lost) << run.name << " at " << run.version << ": " << f.sentence;
        }
      }
      EXPECT_TRUE(named) << run.name << " at " << run.version;
    }
  EXPECT_EQ(altered, 224u);
}

// ---- recorded defects -------------------------------------------------------------------------------------------------------------------

TEST(a_recorded_defect, is_found_before_its_mend_and_not_after) {
  const struct {
    const char *file, *run, *before, *after, *finding;
  } defects[] = {
      {"bf16_optimizer", "c3_bf16opt_ga4_boundary", "pre7985", "post7985", "boundary-leak"},
      {"bf16_optimizer", "c3_bf16opt_ga1_boundary", "pre7985", "post7985", "boundary-leak"},
      {"cpu_offload", "c2_z2_off_ga1_boundary", "pre7981", "post7981", "offload-loss"},
      {"stages_1_to_3", "c1_z2_ga4_boundary", "post7509", "post7665", "discarded-gradient"},
  };
  for (const auto& defect : defects) {
    const Judged before = judged(run_named(defect.file, defect.run, defect.before)), after = judged(run_named(defect.file, defect.run, defect.after));
    EXPECT_EQ(classes_of(before), std::set<std::string>{defect.finding}) << defect.run << " at " << defect.before;
    EXPECT_EQ(after.outcome, JudgedAs::clean) << text_of(after);
  }
}

}  // namespace
}  // namespace gradledger::conform
