// Where few runs leave weights open, each contribution gets a run of its own: when, what that tells, and when it is not believed.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "search/draw/generator.h"
#include "sim/load.h"
#include "tests/support/few_runs.h"
#include "tests/support/sanitized.h"
#include "tests/support/scenarios.h"
#include "tests/support/tampering.h"

namespace gradledger::testing {
namespace {

using Set = std::set<std::string>;

constexpr std::uint32_t alone_max = ref::OracleOptions{}.alone_max;

ref::Verdict judge_alone(const Scenario& scenario, Producer& of, std::uint32_t at_most = alone_max) {
  ref::OracleOptions options;
  options.alone_max = at_most;
  return judged_in_few(scenario, make_timeline(scenario).value(), of, options).verdict;
}

ref::Verdict judge_alone(const Scenario& scenario, std::uint32_t at_most = alone_max) {
  const Timeline timeline = make_timeline(scenario).value();
  return judge_alone(scenario, *make_producer(scenario, timeline), at_most);
}

Scenario scenario_of(const std::string& text) {
  const auto read = read_scenario(text, ".");
  EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().text());
  return read.value();
}

// One element, and a GradScaler's overflow in one of eight contributions.
Scenario of_one_element(std::uint32_t further_windows = 0) {
  return scenario_of(fmt::format(R"({{"name": "a", "world_size": 4, "parameters": [{{"name": "w", "numel": 1}}], "model_dtype": "fp32",
    "engine": {{"framework": "ddp", "as_of": "2.13.0", "config": {{"comm_hook": "noop", "grad_scaler": {{"init_scale": 1024.0}}}},
    "optimizer": {{"type": "SGD", "lr": 1.0}}}}, "contract": {{"window": "since_last_step", "average_over": "none", "divide_by": "gradient_accumulation_steps"}},
    "script": [{{"no_sync": [{{"backward": {{}}}}]}}, {{"zero_grad": "engine"}}, {{"backward": {{}}}}, {{"overflow": {{"ranks": [3], "micro_batch": 0}}}}, {{"step": {{}}}},
    {{"repeat": {{"times": {}, "of": [{{"backward": {{}}}}, {{"step": {{}}}}]}}}}]}})",
                                 further_windows + 1));
}

Scenario of_two_windows(Dtype dtype) {
  Scenario s = base_scenario(2, {30, 21}, dtype);
  deepspeed_config(s).zero.stage = 1;
  deepspeed_config(s).gradient_accumulation_steps = 4;
  s.script = {repeat(2, managed(4))};
  return s;
}

bool left_out(const ref::Verdict& verdict, std::string_view what) {
  return std::any_of(verdict.left_out.begin(), verdict.left_out.end(), [&](const std::string& sentence) { return sentence.find(what) != std::string::npos; });
}

TEST(each_contribution_alone, tells_weights_that_the_sums_of_few_runs_leave_open) {
  // One element with what twenty contributions weigh, some of it averaged twice.
  const Scenario s =
      scenario_of(R"({"name": "a", "world_size": 4, "parameters": [{"name": "w", "numel": 1}], "model_dtype": "fp32", "engine": {"framework": "ddp", "as_of": "2.13.0",
    "config": {}, "optimizer": {"type": "SGD", "lr": 1.0}}, "contract": {"window": "since_last_step", "average_over": "none", "divide_by": "gradient_accumulation_steps"},
    "script": [{"backward": {}}, {"no_sync": [{"backward": {}}, {"backward": {}}]}, {"backward": {}}, {"no_sync": [{"backward": {}}]}, {"step": {}}]})");
  const ref::Verdict few = judge_alone(s, 0), alone = judge_alone(s);
  ASSERT_TRUE(classes(few).contains("rounding-excess")) << sentences(few);
  EXPECT_FALSE(few.each_alone);
  EXPECT_TRUE(left_out(few, "contributions share a run"));
  EXPECT_TRUE(alone.each_alone);
  EXPECT_FALSE(left_out(alone, "contributions share a run"));
  EXPECT_EQ(classes(alone), classes(judge(s))) << sentences(alone);
  EXPECT_FALSE(classes(alone).contains("rounding-excess")) << sentences(alone);
  EXPECT_TRUE(alone.unexplained.empty());
}

// Divisions by three round, so that sums in 16 bits are compared coarsely. What the window before left is near to what is due in each sum of the first run.
TEST(each_contribution_alone, tells_what_is_wrong_in_sums_that_are_near_to_those_that_are_due) {
  const Scenario s = scenario_of(R"({"name": "a", "world_size": 3, "parameters": [{"name": "w", "numel": 5}], "model_dtype": "bf16", "tokens": 1,
    "engine": {"framework": "megatron", "as_of": "0.16.1", "optimizer": {"type": "SGD", "lr": 1.0}, "config": {"ddp": {"grad_reduce_in_fp32": true, "use_distributed_optimizer": true},
    "optimizer_config": {"clip_grad": 0.0}, "model": {"calculate_per_token_loss": true}}}, "contract": {"divide_by": "tokens"},
    "script": [{"no_sync": [{"repeat": {"times": 3, "of": [{"backward": {"weight": "tokens"}}]}}]}, {"backward": {"weight": "tokens"}}, {"event": {"name": "finalize_model_grads"}}, {"step": {}},
    {"zero_grad": "engine"}, {"no_sync": [{"backward": {"weight": "tokens"}}]}, {"step": {}}, {"backward": {"weight": "tokens"}}, {"event": {"name": "finalize_model_grads"}}, {"step": {}}]})");
  const ref::Verdict few = judge_alone(s, 0), alone = judge_alone(s);
  EXPECT_EQ(classes(alone), (Set{"missing-reduction", "stale-gradient", "wrong-scale"})) << sentences(alone);
  EXPECT_EQ(classes(alone), classes(judge(s)));
  EXPECT_TRUE(left_out(few, "a snapshot of a later window, whose values are wrong too")) << sentences(few);
  for (const ref::AppliedRow& row : few.applied) EXPECT_TRUE(row.step < 2 || row.row.inconclusive) << "shown as due";
}

TEST(each_contribution_alone, is_not_asked_for_where_sums_tell_all) {
  const Scenario s = of_two_windows(Dtype::float32);
  EXPECT_FALSE(judge_alone(s).each_alone);
  const Timeline timeline = make_timeline(s).value();
  TamperingProducer twice(s, timeline, [](const Snapshot& x) {
    if (x.role == Role::applied_gradient && x.linear)
      for (double& value : *x.values) value *= 2;
  });
  const ref::Verdict wrong = judge_alone(s, twice);
  EXPECT_FALSE(wrong.findings.empty());
  EXPECT_FALSE(wrong.each_alone);
}

TEST(each_contribution_alone, is_not_asked_for_where_contributions_are_too_many) {
  const Scenario s = of_one_element((alone_max - 8) / 4);
  const ref::Verdict verdict = judge_alone(s);
  ASSERT_GT(verdict.contributions, alone_max);
  EXPECT_FALSE(verdict.each_alone);
  EXPECT_TRUE(judge_alone(s, verdict.contributions).each_alone);
}

// Two ranks that share experts get each other's gradients. Two contributions, of which sums of four elements tell nothing.
TEST(each_contribution_alone, tells_elements_that_hold_those_of_others) {
  const Scenario s = scenario_of(R"({"name": "a", "world_size": 2, "parameters": [{"name": "p0", "numel": 3}, {"name": "expert0", "numel": 4, "expert": 0},
    {"name": "expert1", "numel": 4, "expert": 1}], "model_dtype": "fp32", "engine": {"framework": "deepspeed", "as_of": "0.19.8",
    "config": {"gradient_accumulation_steps": 1, "managed_gradient_accumulation": false, "gradient_clipping": 0.0, "bf16": {"immediate_grad_update": false},
    "zero_optimization": {"stage": 1, "contiguous_gradients": false}}, "optimizer": {"type": "SGD", "lr": 1.0}, "expert_parallel_size": 2},
    "contract": {"window": "since_last_step", "average_over": "world", "divide_by": "gradient_accumulation_steps"},
    "script": [{"backward": {}}, {"step": {}}]})");
  EXPECT_EQ(classes(judge_alone(s, 0)), Set{"rounding-excess"});
  const ref::Verdict alone = judge_alone(s);
  EXPECT_EQ(classes(alone), Set{"misplaced-shard"}) << sentences(alone);
}

// Numbers that are no sum of contributions have some weight for each of them, in its run.
TEST(each_contribution_alone, is_not_believed_where_its_weights_do_not_make_the_sums) {
  for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16}) {
    const Scenario s = of_two_windows(dtype);
    std::uint32_t run = 0;
    const Timeline timeline = make_timeline(s).value();
    TamperingProducer producer(s, timeline, [&](const Snapshot& x) {
      if (x.role == Role::applied_gradient && x.rank == 1 && x.linear)
        for (std::size_t i = 0; i < x.values->size(); ++i) (*x.values)[i] += static_cast<double>((i * 7 + ++run) % 5 + 1);
    });
    const ref::Verdict verdict = judge_alone(s, producer);
    EXPECT_TRUE(verdict.each_alone);
    EXPECT_EQ(classes(verdict), Set{"rounding-excess"}) << sentences(verdict);
    EXPECT_FALSE(verdict.unexplained.empty());
  }
}

bool has_gradient(const GradientSource& source, const Scenario& scenario, std::uint32_t backward, std::uint32_t rank) {
  for (std::uint32_t p = 0; p < scenario.parameters.size(); ++p) {
    std::vector<double> gradient(scenario.parameters[p].numel);
    source.gradient(backward, rank, p, 0, gradient);
    if (std::any_of(gradient.begin(), gradient.end(), [](double g) { return g != 0; })) return true;
  }
  return false;
}

// Ranks whose own gradients are all zero stop before they show anything, as an optimizer does that asks for a norm above zero.
class SilentWithoutGradients final : public Producer {
 public:
  SilentWithoutGradients(Producer& inner, const Scenario& scenario, const Timeline& timeline) : inner_(inner), scenario_(scenario), timeline_(timeline) {}

  std::string_view name() const override { return "silent without gradients"; }
  Capabilities capabilities() const override { return inner_.capabilities(); }
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override {
    Heard heard;
    heard.add(&sink);
    for (std::uint32_t r = 0; r < scenario_.world_size; ++r) heard.speaks.push_back(has_gradients(source, r));
    return inner_.run(source, options, heard);
  }

 private:
  struct Heard final : ref::Tee {
    void observe(const Observation& o) override {
      if (speaks[o.rank]) Tee::observe(o);
    }
    std::vector<bool> speaks;
  };

  bool has_gradients(const GradientSource& source, std::uint32_t rank) const {
    for (std::uint32_t b = 0; b < timeline_.backwards.size(); ++b)
      if (has_gradient(source, scenario_, b, rank)) return true;
    return false;
  }

  Producer& inner_;
  const Scenario& scenario_;
  const Timeline& timeline_;
};

// Two elements leave none to share whose weights a neighbour on either side tells.
TEST(each_contribution_alone, is_absent_where_its_run_shows_nothing_and_the_sums_bear_that_out) {
  const Scenario s = scenario_of(R"({"name": "a", "world_size": 4, "parameters": [{"name": "p0", "numel": 2}, {"name": "p1", "numel": 2}], "model_dtype": "bf16",
    "engine": {"framework": "deepspeed", "as_of": "0.17.5", "optimizer": {"type": "SGD", "lr": 1.0}, "config": {"gradient_accumulation_steps": 1,
    "gradient_predivide_factor": 2.0, "gradient_clipping": 0.0, "bf16": {"enabled": true, "immediate_grad_update": true}, "zero_optimization": {"stage": 0}}},
    "contract": {"window": "since_last_step", "average_over": "world", "divide_by": "gradient_accumulation_steps"},
    "script": [{"no_sync": [{"repeat": {"times": 10, "of": [{"backward": {"direct": true}}]}}]}, {"step": {}}]})");
  const Timeline timeline = make_timeline(s).value();
  const auto inner = make_producer(s, timeline);
  SilentWithoutGradients silent(*inner, s, timeline);
  const ref::Verdict verdict = judge_alone(s, silent);
  EXPECT_TRUE(verdict.each_alone);
  EXPECT_EQ(classes(verdict), classes(judge(s))) << sentences(verdict);
  ASSERT_FALSE(verdict.applied.empty());
  for (const ref::AppliedRow& row : verdict.applied) EXPECT_EQ(row.columns.size(), verdict.contributions) << "those of other ranks too";
}

// Ranks stop at the first step whose window has no gradient on any of them, as BF16_Optimizer does.
class StopsWithoutGradients final : public Producer {
 public:
  StopsWithoutGradients(Producer& inner, const Scenario& scenario, const Timeline& timeline) : inner_(inner), scenario_(scenario), timeline_(timeline) {}

  std::string_view name() const override { return "stops without gradients"; }
  Capabilities capabilities() const override { return inner_.capabilities(); }
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override {
    Heard heard;
    heard.add(&sink);
    for (std::uint32_t e = 0; e < timeline_.events.size() && heard.until == never; ++e)
      if (timeline_.events[e].steps() && !has_gradients(source, timeline_.events[e].step)) heard.until = e;
    return inner_.run(source, options, heard);
  }

 private:
  struct Heard final : ref::Tee {
    void observe(const Observation& o) override {
      if (o.event < until) Tee::observe(o);
    }
    std::uint32_t until = never;
  };

  bool has_gradients(const GradientSource& source, std::uint32_t step) const {
    for (std::uint32_t b = 0; b < timeline_.backwards.size(); ++b)
      for (std::uint32_t r = 0; r < scenario_.world_size && timeline_.backwards[b].step == step; ++r)
        if (has_gradient(source, scenario_, b, r)) return true;
    return false;
  }

  Producer& inner_;
  const Scenario& scenario_;
  const Timeline& timeline_;
};

// Alone in its window, a contribution would stop the steps of all others, so that all share an element.
TEST(each_contribution_alone, is_kept_from_being_the_only_one_where_a_window_without_gradients_stops_the_run) {
  const Scenario s = scenario_of(R"({"name": "a", "world_size": 4, "parameters": [{"name": "p0", "numel": 24}, {"name": "p1", "numel": 14}], "model_dtype": "bf16",
    "engine": {"framework": "deepspeed", "as_of": "0.18.9", "optimizer": {"type": "SGD", "lr": 1.0}, "config": {"gradient_accumulation_steps": 3,
    "data_types": {"grad_accum_dtype": "fp32"}, "gradient_clipping": 0.0, "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}}},
    "contract": {"window": "since_last_step", "average_over": "world", "divide_by": "gradient_accumulation_steps"},
    "script": [{"backward": {}}, {"backward": {}}, {"step": {}}, {"backward": {}}, {"backward": {}}, {"backward": {}}, {"step": {}}, {"step": {}},
    {"backward": {}}, {"backward": {}}, {"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {}}, {"backward": {}}, {"backward": {}}, {"backward": {}}, {"step": {}}]})");
  const Timeline timeline = make_timeline(s).value();
  const auto inner = make_producer(s, timeline);
  StopsWithoutGradients stops(*inner, s, timeline);
  const ref::Verdict verdict = judge_alone(s, stops);
  EXPECT_TRUE(verdict.each_alone);
  EXPECT_EQ(classes(verdict), classes(judge(s))) << sentences(verdict);
  EXPECT_TRUE(verdict.unexplained.empty());
}

// Calls everything that a step applies by one name.
class OneName final : public Producer {
 public:
  explicit OneName(Producer& inner) : inner_(inner) {}

  std::string_view name() const override { return "one name"; }
  Capabilities capabilities() const override { return inner_.capabilities(); }
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override {
    Renamed renamed;
    renamed.add(&sink);
    return inner_.run(source, options, renamed);
  }

 private:
  struct Renamed final : ref::Tee {
    void observe(const Observation& o) override {
      Observation called = o;
      if (o.role == Role::applied_gradient) called.buffer = "param.grad";
      Tee::observe(called);
    }
  };

  Producer& inner_;
};

TEST(each_contribution_alone, is_asked_of_the_first_of_two_buffers_of_one_name) {
  const Scenario s = scenario_of(R"({"name": "a", "world_size": 4, "parameters": [{"name": "p0", "numel": 4}, {"name": "expert0", "numel": 12, "expert": 0},
    {"name": "expert1", "numel": 12, "expert": 1}], "model_dtype": "fp32", "engine": {"framework": "megatron", "as_of": "0.16.1",
    "config": {"optimizer_config": {"clip_grad": 0.0}}, "optimizer": {"type": "SGD", "lr": 1.0}, "expert_parallel_size": 2},
    "contract": {"window": "since_last_step", "average_over": "world", "divide_by": "gradient_accumulation_steps"},
    "script": [{"backward": {}}, {"backward": {}}, {"step": {}}]})");
  const Timeline timeline = make_timeline(s).value();
  const auto inner = make_producer(s, timeline);
  OneName producer(*inner);
  ref::OracleOptions options;
  options.executor = ref::Executor::numeric;
  const ref::Verdict verdict = ref::judge(s, timeline, producer, options);
  EXPECT_EQ(classes(verdict), Set{"missing-reduction"}) << sentences(verdict);
  for (const ref::AppliedRow& row : verdict.applied) EXPECT_EQ(row.columns.size(), verdict.contributions) << "each contribution once";
  EXPECT_FALSE(verdict.applied.empty());
}

TEST(each_contribution_alone, of_drawn_scripts_names_what_many_runs_name) {
  constexpr std::uint64_t seed = 11, scripts = sanitized ? 60 : 400;
  std::size_t asked = 0, open = 0, same = 0;
  search::Profile any;
  any.as_documented = false;
  for (std::uint64_t number = 0; number < scripts; ++number) {
    const search::Drawn drawn = search::draw_case(any, seed, number);
    if (drawn.timeline.contract.approximation) continue;
    const TwoVerdicts verdicts = judge_twice(
        drawn.scenario, drawn.timeline, [&] { return make_producer(drawn.scenario, drawn.timeline); }, seed, alone_max);
    if (!verdicts.few.each_alone) continue;
    ++asked;
    open += verdicts.told_open();
    EXPECT_EQ(verdicts.invented(), Set{}) << "case " << number << "\n" << sentences(verdicts.few) << sentences(verdicts.full);
    same += classes(verdicts.few) == classes(verdicts.full);
  }
  RecordProperty("asked", static_cast<int>(asked));
  RecordProperty("open", static_cast<int>(open));
  RecordProperty("same", static_cast<int>(same));
  EXPECT_GT(asked, scripts / 200);
  EXPECT_LE(4 * open, asked);
  EXPECT_GE(16 * same, 15 * asked) << same << " of " << asked;
}

}  // namespace
}  // namespace gradledger::testing
