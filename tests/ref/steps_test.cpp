// What steps decide: the documented loss scale by hand-computed sequences, and each class from a producer that lies in just that way.
#include <gtest/gtest.h>

#include "ref/loss_scale.h"
#include "ref/overflow.h"
#include "ref/probes.h"
#include "ref/steps.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "tests/support/tampering.h"

namespace gradledger::testing {
namespace {

using Set = std::set<std::string>;

Scenario fp16_scenario(std::uint32_t stage, std::uint32_t windows = 3) {
  Scenario s = base_scenario(2, {30, 21, 13}, Dtype::float16);
  deepspeed_config(s).gradient_accumulation_steps = 2;
  deepspeed_config(s).fp16.initial_scale_power = 4;
  deepspeed_config(s).fp16.hysteresis = 1;
  deepspeed_config(s).zero.stage = stage;
  s.engine.as_of.switches["fp16_st0_scale"] = "applied";
  s.script = {repeat(windows, managed(2))};
  return s;
}

// The scale after each of the steps; 'o' is an overflow, '.' none.
std::vector<double> scales(const Scenario& s, const std::string& steps) {
  ref::LossScaleModel model(make_timeline(s)->contract.loss_scale);
  std::vector<double> out;
  for (char step : steps) {
    model.step(step == 'o');
    out.push_back(model.scale());
  }
  return out;
}

TEST(loss_scale_model, follows_hand_computed_sequences) {
  Scenario s = fp16_scenario(2);
  Fp16Config& config = deepspeed_config(s).fp16;
  config.loss_scale_window = 2;
  EXPECT_EQ(scales(s, "....."), (std::vector<double>{16, 16, 32, 32, 64})) << "every second good step after the first";
  EXPECT_EQ(scales(s, "oo...."), (std::vector<double>{8, 4, 4, 4, 8, 8}));
  EXPECT_EQ(scales(s, "oooooo"), (std::vector<double>{8, 4, 2, 1, 1, 1})) << "not below the minimum";
  config.hysteresis = 3;
  EXPECT_EQ(scales(s, "oooo"), (std::vector<double>{16, 16, 8, 4})) << "once used up, every overflow halves";
  EXPECT_EQ(scales(s, "oo.o."), (std::vector<double>{16, 16, 16, 8, 8})) << "a good step alone refills nothing";
  EXPECT_EQ(scales(s, "oo...oo"), (std::vector<double>{16, 16, 16, 16, 32, 32, 32})) << "a growth step does";
  config.consecutive_hysteresis = true;
  EXPECT_EQ(scales(s, "oo.oo"), (std::vector<double>{16, 16, 16, 16, 16})) << "every good step does";
  deepspeed_config(s).zero.stage = 0;
  EXPECT_EQ(scales(s, "oo"), (std::vector<double>{8, 4})) << "stage 0 has no hysteresis";
  config.loss_scale = 128;
  EXPECT_EQ(scales(s, "o.."), (std::vector<double>{128, 128, 128})) << "a static scale stays";
}

TEST(loss_scale_model, grows_with_the_window_or_a_step_behind_it_by_release) {
  Scenario s = fp16_scenario(1);
  deepspeed_config(s).fp16.loss_scale_window = 2;
  for (const char* as_of : {"0.16.0", "0.17.0", "before #6976"}) {
    s.engine.as_of.base = as_of;
    EXPECT_EQ(scales(s, "....."), (std::vector<double>{16, 32, 32, 64, 64})) << as_of;
    EXPECT_EQ(scales(s, ".o..."), (std::vector<double>{16, 8, 8, 16, 16})) << as_of;
  }
  s.engine.as_of.base = "0.17.1";
  EXPECT_EQ(scales(s, ".o..."), (std::vector<double>{16, 8, 8, 8, 16}));
  s.engine.as_of.base = "0.17.0";
  deepspeed_config(s).zero.stage = 0;
  EXPECT_EQ(scales(s, "....."), (std::vector<double>{16, 16, 32, 32, 64})) << "stage 0 has a scaler of its own";
}

TEST(overflow_checks, are_promised_by_fp16_and_by_bf16_where_the_key_has_an_effect_or_asks) {
  Scenario s = fp16_scenario(0);
  EXPECT_TRUE(make_timeline(s)->contract.skips_nonfinite);
  s = base_scenario(1, {1}, Dtype::bfloat16);
  for (std::uint32_t stage : {0u, 1u, 2u, 3u}) {
    deepspeed_config(s).zero.stage = stage;
    deepspeed_config(s).bf16.check_grad_overflow.reset();
    EXPECT_EQ(make_timeline(s)->contract.skips_nonfinite, stage == 1 || stage == 2);
    for (bool asked : {false, true}) {
      deepspeed_config(s).bf16.check_grad_overflow = asked;
      EXPECT_EQ(make_timeline(s)->contract.skips_nonfinite, asked);
    }
  }
  EXPECT_FALSE(make_timeline(base_scenario(1, {1}, Dtype::float32))->contract.skips_nonfinite);
}

// ---- producers that lie ---------------------------------------------------------------------------------------------------------------

Set classes_with_fact(const Scenario& s, StepFact fact, double factor) {
  return classes(judge_tampered(
      s, [](const Snapshot&) {}, 0,
      [&](StepRecord& m) {
        if (m.fact == fact && m.rank == 1) m.value *= factor;
      }));
}

TEST(wrong_norm, is_a_reported_or_clipping_norm_outside_its_bound) {
  for (std::uint32_t stage : {1u, 2u, 3u}) {
    Scenario s = fp16_scenario(stage);
    deepspeed_config(s).gradient_clipping = 0.25;
    EXPECT_EQ(classes_with_fact(s, StepFact::gradient_norm, 1), Set{}) << stage;
    EXPECT_EQ(classes_with_fact(s, StepFact::gradient_norm, 1.25), Set{"wrong-norm"}) << stage;
    EXPECT_EQ(classes_with_fact(s, StepFact::clipping_norm, 0.75), Set{"wrong-norm"}) << stage;
    EXPECT_EQ(classes_with_fact(s, StepFact::loss_scale, 2), Set{"wrong-scale"}) << stage;
  }
}

TEST(wrong_norm, is_any_norm_of_gradients_that_are_all_zero) {
  Scenario s = base_scenario(2, {8}, Dtype::float32);
  deepspeed_config(s).zero.stage = 2;
  s.script = {backward(), step()};
  s.gradients.kind = GradientKind::values;
  s.gradients.values = std::make_shared<GivenValues>(GivenValues{{std::vector<double>(8, 0.0), std::vector<double>(8, 0.0)}});
  const auto with_norm = [&](double norm) {
    return classes(judge_tampered(
        s, [](const Snapshot&) {}, 0,
        [&](StepRecord& m) {
          if (m.fact == StepFact::gradient_norm && m.rank == 1) m.value += norm;
        }));
  };
  EXPECT_EQ(with_norm(0), Set{});
  EXPECT_EQ(with_norm(0.5), Set{"wrong-norm"});
}

TEST(wrong_skip, is_an_overflow_that_no_gradient_explains) {
  const ref::Verdict verdict = judge_tampered(
      fp16_scenario(2), [](const Snapshot&) {}, 0,
      [](StepRecord& m) {
        if (m.fact == StepFact::skipped && m.event == 3 && m.rank == 0) m.value = 1;
      });
  EXPECT_EQ(classes(verdict), Set{"wrong-skip"}) << sentences(verdict);
  ASSERT_EQ(verdict.findings.size(), 1u);
  EXPECT_NE(verdict.findings[0].sentence.find("step 0, rank 0"), std::string::npos) << sentences(verdict);
}

TEST(wrong_skip, is_a_step_of_a_window_with_a_planted_value_and_nothing_of_it_is_due) {
  Scenario s = fp16_scenario(2);
  s.script.insert(s.script.begin(), overflow(0, 1));
  EXPECT_EQ(classes(judge(s)), Set{}) << sentences(judge(s));
  // A producer that knows nothing of the overflow steps.
  Scenario without = s;
  without.script.erase(without.script.begin());
  const auto timeline = make_timeline(s), finite = make_timeline(without);
  class Deaf final : public Producer {
   public:
    Deaf(const Scenario& scenario, const Timeline& t) : inner_(scenario, t) {}
    std::string_view name() const override { return "deaf"; }
    RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override { return inner_.run(Finite(source), options, sink); }

   private:
    class Finite final : public GradientSource {
     public:
      explicit Finite(const GradientSource& inner) : inner_(inner) {}
      void gradient(std::uint32_t b, std::uint32_t r, std::uint32_t p, std::uint64_t offset, std::span<double> out) const override {
        inner_.gradient(b, r, p, offset, out);
        for (double& x : out)
          if (!std::isfinite(x)) x = 0;
      }
      void initial_parameter(std::uint32_t p, std::uint64_t offset, std::span<double> out) const override { inner_.initial_parameter(p, offset, out); }

     private:
      const GradientSource& inner_;
    };
    HostExecutor inner_;
  };
  Deaf deaf(without, *finite);
  const ref::Verdict verdict = ref::judge(s, *timeline, deaf, {});
  EXPECT_EQ(classes(verdict), (Set{"discarded-gradient", "wrong-skip"})) << sentences(verdict) << "nor is the infinity in any sum";
  const auto row = std::find_if(verdict.applied.begin(), verdict.applied.end(), [](const ref::AppliedRow& r) { return r.step == 0; });
  ASSERT_NE(row, verdict.applied.end());
  for (std::size_t k = 0; k < row->columns.size(); ++k) EXPECT_EQ(row->row.expected[k], 0) << "nothing of the window is due";
  EXPECT_TRUE(std::any_of(verdict.applied.begin(), verdict.applied.end(), [](const ref::AppliedRow& r) {
    return r.step == 0 && std::any_of(r.row.observed.begin(), r.row.observed.end(), [](double weight) { return weight != 0; });
  })) << "what was applied all the same is decoded";
}

// As a real rank whose shard has no element: it shows no gradient that it applied, and says whether it updated.
class WithoutElements final : public Producer {
 public:
  WithoutElements(const Scenario& scenario, const Timeline& timeline, std::uint32_t rank, double updated) : inner_(scenario, timeline), rank_(rank), updated_(updated) {}
  std::string_view name() const override { return "without elements"; }
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override {
    Sink silent(*this, sink);
    return inner_.run(source, options, silent);
  }

 private:
  class Sink final : public TraceSink {
   public:
    Sink(const WithoutElements& owner, TraceSink& to) : owner_(owner), to_(to) {}
    void observe(const Observation& o) override {
      if (o.rank != owner_.rank_ || o.role != Role::applied_gradient) to_.observe(o);
    }
    void collective(const CollectiveRecord& r) override { to_.collective(r); }
    void memory(const MemoryRecord& r) override { to_.memory(r); }
    void step_fact(const StepRecord& r) override {
      StepRecord said = r;
      if (said.rank == owner_.rank_ && said.fact == StepFact::updated) said.value = owner_.updated_;
      to_.step_fact(said);
    }
    void event_done(std::uint32_t rank, std::uint32_t event) override { to_.event_done(rank, event); }
    void engine_error(const EngineErrorRecord& r) override { to_.engine_error(r); }

   private:
    const WithoutElements& owner_;
    TraceSink& to_;
  };

  HostExecutor inner_;
  std::uint32_t rank_;
  double updated_;
};

TEST(wrong_skip, is_no_step_of_a_rank_whose_shard_has_no_element_unless_it_says_that_it_did_not_update) {
  Scenario s = fp16_scenario(2, 1);
  s.parameters = base_scenario(2, {1}, Dtype::float16).parameters;
  const auto timeline = make_timeline(s);
  WithoutElements updates(s, *timeline, 1, 1), does_not(s, *timeline, 1, 0);
  const ref::Verdict clean = ref::judge(s, *timeline, updates, {}), skipped = ref::judge(s, *timeline, does_not, {});
  EXPECT_EQ(classes(clean), Set{}) << sentences(clean);
  EXPECT_TRUE(classes(skipped).contains("wrong-skip")) << sentences(skipped);
}

// Rank 0 raises, since its norm is not a number, and rank 1 has updated when it waits for it.
Scenario raises_on_one_rank() {
  Scenario s = base_scenario(2, {13}, Dtype::bfloat16);
  deepspeed_config(s).gradient_accumulation_steps = 1;
  deepspeed_config(s).grad_accum_dtype = Dtype::float32;
  deepspeed_config(s).managed_gradient_accumulation = false;
  deepspeed_config(s).zero.stage = 1;
  deepspeed_config(s).gradient_clipping = 0;
  s.engine.as_of.base = "0.18.9";
  s.script = {overflow(0, 0), backward(), step()};
  return s;
}

// As a real rank, whose step says what it did when it is over.
class SaysNothing final : public Producer {
 public:
  SaysNothing(const Scenario& scenario, const Timeline& timeline) : inner_(scenario, timeline) {}
  std::string_view name() const override { return "says nothing"; }
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override {
    Sink silent(sink);
    return inner_.run(source, options, silent);
  }

 private:
  class Sink final : public TraceSink {
   public:
    explicit Sink(TraceSink& to) : to_(to) {}
    void observe(const Observation& o) override { to_.observe(o); }
    void event_done(std::uint32_t rank, std::uint32_t event) override { to_.event_done(rank, event); }
    void engine_error(const EngineErrorRecord& r) override { to_.engine_error(r); }
    void deadlock(const DeadlockRecord& r) override { to_.deadlock(r); }

   private:
    TraceSink& to_;
  };

  HostExecutor inner_;
};

TEST(wrong_skip, is_an_update_of_a_step_that_hangs_before_it_says_what_it_did) {
  const Scenario s = raises_on_one_rank();
  const auto timeline = make_timeline(s);
  SaysNothing producer(s, *timeline);
  const ref::Verdict verdict = ref::judge(s, *timeline, producer, {});
  EXPECT_EQ(classes(verdict), (Set{"deadlock", "engine-error", "wrong-skip"})) << sentences(verdict);
  EXPECT_EQ(classes(judge(s)), classes(verdict)) << sentences(judge(s));
}

TEST(wrong_skip, is_not_said_of_a_rank_that_waits_before_its_update) {
  Scenario s = base_scenario(2, {13}, Dtype::bfloat16);
  deepspeed_config(s).zero.stage = 2;
  deepspeed_config(s).gradient_clipping = 0.5;
  s.engine.as_of.base = "0.18.9";
  s.script = {overflow(0, 0), backward(), step()};
  s.script.back().ranks = {0};
  EXPECT_EQ(classes(judge(s)), Set{"deadlock"}) << sentences(judge(s));
}

TEST(wrong_skip, is_a_rank_alone_where_skipping_and_going_on_are_both_right) {
  Scenario s = base_scenario(2, {30, 21, 13}, Dtype::bfloat16);
  deepspeed_config(s).zero.stage = 3;
  s.engine.as_of.base = "0.19.7";  // the last that goes on
  s.script = {overflow(0, 0), backward(), step()};
  for (const bool alone : {false, true}) {
    const ref::Verdict verdict = judge_tampered(
        s, [](const Snapshot&) {}, 0,
        [&](StepRecord& m) {
          if (alone && m.fact == StepFact::skipped && m.rank == 1) m.value = 1;
        });
    EXPECT_EQ(classes(verdict), alone ? Set{"wrong-skip"} : Set{}) << sentences(verdict);
  }
}

// A producer that skips step 0 or 1 as it must, and changes a buffer of rank 1 all the same.
ref::Verdict judge_touched(Scenario s, std::uint32_t skipped, Role role, bool touched) {
  s.script = {repeat(1, managed(2)), repeat(2, managed(2))};
  s.script.insert(s.script.begin() + skipped, overflow(0, 1));
  return judge_tampered(s, [&](const Snapshot& x) {
    if (touched && x.role == role && !x.linear && x.at_end && x.rank == 1 && x.step == skipped && !x.values->empty()) x.values->at(0) += 1;
  });
}

TEST(wrong_skip, is_a_skipped_step_that_changes_weights_or_state) {
  for (std::uint32_t stage : {0u, 1u, 2u, 3u})
    for (Role role : {Role::parameter, Role::master_parameter, Role::first_moment, Role::second_moment})
      for (std::uint32_t step : {0u, 1u}) {
        Scenario s = fp16_scenario(stage, 1);
        deepspeed_config(s).fp16.initial_scale_power = 6;
        s.engine.optimizer.type = OptimizerType::adam;
        s.engine.as_of.switches["master_first_step"] = "not_taken";  // live-34 is another finding
        const ref::Verdict verdict = judge_touched(s, step, role, true);
        ASSERT_EQ(classes(verdict), Set{"wrong-skip"}) << stage << " " << step << " " << sentences(verdict);
        ASSERT_EQ(verdict.findings.size(), 1u) << sentences(verdict);
        EXPECT_EQ(verdict.findings[0].step, step);
        EXPECT_EQ(verdict.findings[0].rank, 1u);
        EXPECT_NE(verdict.findings[0].sentence.find("skips, and "), std::string::npos) << sentences(verdict);
        EXPECT_FALSE(verdict.findings[0].elements.empty());
        EXPECT_EQ(classes(judge_touched(s, step, role, false)), Set{}) << "without the change nothing is wrong";
      }
}

TEST(nonfinite_missed, is_an_applied_gradient_that_is_not_finite_where_the_configuration_checks) {
  const ref::Verdict verdict = judge_tampered(fp16_scenario(2), [](const Snapshot& x) {
    if (x.role == Role::applied_gradient && !x.linear && x.step == 1 && x.rank == 0) x.values->at(3) = std::numeric_limits<double>::infinity();
  });
  EXPECT_TRUE(classes(verdict).contains("nonfinite-missed")) << sentences(verdict);
}

TEST(clipping, that_is_left_out_is_a_wrong_norm_with_both_factors) {
  Scenario s = fp16_scenario(2);
  deepspeed_config(s).gradient_clipping = 0.0;
  Scenario clipped = s;
  deepspeed_config(clipped).gradient_clipping = 0.25;
  const auto timeline = make_timeline(s);
  HostExecutor producer(s, *timeline);
  const auto meant = make_timeline(clipped);
  const ref::Verdict verdict = ref::judge(clipped, *meant, producer, {});
  ASSERT_EQ(classes(verdict), Set{"wrong-norm"}) << sentences(verdict);
  ASSERT_TRUE(verdict.findings[0].quantity);
  EXPECT_LT(std::abs(verdict.findings[0].quantity->observed - 1), 1.0 / 256) << "not clipped";
  EXPECT_LT(verdict.findings[0].quantity->due, 1);
}

// A real framework reports a step's decision when it is over: of a rank that hangs in it nothing is known but what it asked its peers for.
TEST(overflows, are_missed_by_a_rank_that_asks_for_a_norm_while_others_skip) {
  Scenario s = fp16_scenario(1, 1);
  ScriptItem overflow = event(ScriptKind::overflow);
  overflow.planted = PlantedValue::not_a_number;
  overflow.micro_batch = 0;
  s.script = {event(ScriptKind::backward), event(ScriptKind::step), event(ScriptKind::backward), overflow, event(ScriptKind::step)};
  const Timeline timeline = make_timeline(s).value();
  const auto last = static_cast<std::uint32_t>(timeline.events.size() - 1);
  ASSERT_TRUE(timeline.events[last].updates());
  const auto values = ref::value_source(s, timeline, GradientKind::normal, 0);
  const ref::PlantedSource source(*values, timeline);
  const auto found = [&](const std::set<std::uint32_t>& in_norm, bool ends) {
    ref::Model model(s, timeline, source, ref::Model::Mode::bounded);
    ref::StepJudge judge(s, timeline, source, model);
    judge.step_fact({0, last, StepFact::skipped, 1});
    judge.event_done(0, last);
    for (const std::uint32_t rank : in_norm) {
      CollectiveRecord norm;
      norm.rank = rank;
      norm.event = last;
      norm.purpose = Purpose::norm;
      judge.collective(norm);
    }
    if (ends) judge.event_done(1, last);
    std::vector<std::pair<ref::FindingClass, std::uint32_t>> out;
    for (const ref::StepMismatch& m : judge.mismatches()) out.emplace_back(m.finding, m.rank);
    return out;
  };
  using Found = std::vector<std::pair<ref::FindingClass, std::uint32_t>>;
  EXPECT_EQ(found({1}, false), (Found{{ref::FindingClass::wrong_skip, 1}}));
  EXPECT_EQ(found({}, false), Found{}) << "it may wait for who looks for overflows";
  EXPECT_EQ(found({0, 1}, false), Found{}) << "the norm is what decides";
}

}  // namespace
}  // namespace gradledger::testing
