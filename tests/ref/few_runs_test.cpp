// The oracle with a handful of runs: how many it takes, and what it says of small shards, coarse formats, planted overflows and producers that lie.
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string_view>

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "sim/load.h"
#include "tests/support/few_runs.h"
#include "tests/support/loops.h"
#include "tests/support/tampering.h"

namespace gradledger::testing {
namespace {

using Set = std::set<std::string>;

// alone_max: 0 is what the few tell by themselves.
JudgedInFew judge_few(
    const Scenario& scenario, Tamper tamper = [](const Snapshot&) {}, std::uint32_t alone_max = 0) {
  const auto timeline = make_timeline(scenario);
  TamperingProducer inner(scenario, *timeline, std::move(tamper));
  ref::OracleOptions options;
  options.alone_max = alone_max;
  return judged_in_few(scenario, *timeline, inner, options);
}

Scenario four_micro_batches(Dtype dtype = Dtype::bfloat16, std::uint32_t world = 2, const std::vector<std::uint32_t>& sizes = {30, 21, 13}) {
  Scenario s = base_scenario(world, sizes, dtype);
  deepspeed_config(s).zero.stage = 1;
  deepspeed_config(s).gradient_accumulation_steps = 4;
  s.script = {repeat(2, managed(4))};
  return s;
}

TEST(few_runs, are_two_where_all_is_right_however_many_steps_there_are) {
  for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16, Dtype::float16})
    for (const std::uint32_t world : {1u, 2u, 3u, 4u})
      for (const std::uint32_t steps : {1u, 2u, 9u}) {
        Scenario s = four_micro_batches(dtype, world);
        s.script = {repeat(steps, managed(4))};
        const JudgedInFew few = judge_few(s);
        EXPECT_EQ(classes(few.verdict), Set{}) << sentences(few.verdict);
        EXPECT_EQ(few.runs, 2u);
        EXPECT_TRUE(few.verdict.coverage.nothing.empty());
        EXPECT_EQ(few.verdict.coverage.windows_judged, steps);
      }
}

TEST(few_runs, hold_small_shards_to_the_books) {
  for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16, Dtype::float16})
    for (const std::uint32_t stage : {0u, 1u, 2u, 3u})
      for (const std::uint64_t numel : {1u, 2u, 3u, 5u}) {
        Scenario s = four_micro_batches(dtype, 2, {numel, 1});
        deepspeed_config(s).zero.stage = stage;
        const JudgedInFew right = judge_few(s);
        EXPECT_EQ(classes(right.verdict), classes(judge(s))) << sentences(right.verdict);
        const JudgedInFew wrong = judge_few(s, [](const Snapshot& x) {
          if (x.role == Role::applied_gradient && x.linear)
            for (double& value : *x.values) value *= 2;
        });
        EXPECT_FALSE(wrong.verdict.findings.empty()) << "stage " << stage << ", " << numel << " elements";
        EXPECT_LE(wrong.runs, dtype == Dtype::float16 ? 6u : 4u);
        EXPECT_EQ(classes(wrong.verdict).contains("misplaced-shard"), false) << sentences(wrong.verdict);
      }
}

TEST(few_runs, place_the_half_of_a_parameter_that_was_lost) {
  for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16}) {
    const JudgedInFew few = judge_few(four_micro_batches(dtype), [](const Snapshot& x) {
      if (x.role == Role::applied_gradient && x.rank == 0 && x.step == 1 && x.linear)
        for (std::size_t i = 11; i < 27; ++i) (*x.values)[i] = 0;
    });
    ASSERT_EQ(classes(few.verdict), Set{"discarded-gradient"}) << sentences(few.verdict);
    const ref::Finding& f = few.verdict.findings.front();
    ASSERT_EQ(f.elements.size(), 1u);
    EXPECT_EQ(f.elements.front(), (ref::ElementRange{0, 11, 27}));
    EXPECT_EQ(f.contributions.size(), 8u);
    EXPECT_LE(few.runs, 4u);
  }
}

TEST(few_runs, find_one_wrong_element_wherever_it_is) {
  for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16, Dtype::float16})
    for (const std::size_t at : {std::size_t{0}, std::size_t{17}, std::size_t{31}}) {
      const JudgedInFew few = judge_few(four_micro_batches(dtype), [&](const Snapshot& x) {
        if (x.role == Role::applied_gradient && x.rank == 0 && x.step == 0 && x.linear) (*x.values)[at] *= 0.5;
      });
      ASSERT_EQ(few.verdict.findings.size(), 1u) << sentences(few.verdict);
      ASSERT_EQ(few.verdict.findings.front().elements.size(), 1u);
      EXPECT_EQ(few.verdict.findings.front().elements.front().end - few.verdict.findings.front().elements.front().begin, 1u);
      EXPECT_LE(few.runs, 4u);
    }
}

TEST(few_runs, say_that_elements_hold_what_belongs_to_others) {
  const Tamper rotate = [](const Snapshot& x) {
    if (x.role == Role::applied_gradient && x.rank == 0) std::rotate(x.values->begin(), x.values->begin() + 1, x.values->end());
  };
  const JudgedInFew few = judge_few(four_micro_batches(Dtype::float32), rotate);
  EXPECT_TRUE(classes(few.verdict).contains("misplaced-shard")) << sentences(few.verdict);
  EXPECT_EQ(classes(few.verdict), classes(judge_tampered(four_micro_batches(Dtype::float32), rotate))) << sentences(few.verdict);
  std::size_t misplaced = 0;
  for (const ref::AppliedRow& row : few.verdict.applied)
    for (std::size_t k = 0; k < row.columns.size(); ++k) {
      if (!row.row.misplaced_at(k)) continue;
      ++misplaced;
      EXPECT_EQ(row.rank, 0u);
      EXPECT_EQ(row.row.observed[k], 0) << "of its own the element has nothing";
      EXPECT_EQ(row.columns[k].step, row.step) << "of other windows nothing is due anywhere";
    }
  EXPECT_GT(misplaced, 0u);
}

// GradScaler divides all that is in a gradient, what an earlier window left there too.
TEST(few_runs, tell_what_a_loops_scaler_has_left_of_a_gradient_that_nobody_cleared) {
  for (const char* framework : {"ddp", "fsdp2", "fsdp1"})
    for (const std::uint32_t numel : {2u, 24u}) {
      const std::string text = fmt::format(R"({{"name": "a", "world_size": 2, "parameters": [{{"name": "w", "numel": {}}}], "model_dtype": "fp32",
        "engine": {{"framework": "{}", "as_of": "2.13.0", "config": {{"grad_scaler": {{"init_scale": 64.0, "growth_interval": 1}}}}, "optimizer": {{"type": "SGD", "lr": 1.0}}}},
        "script": [{{"backward": {{}}}}, {{"step": {{}}}}, {{"backward": {{}}}}, {{"backward": {{}}}}, {{"step": {{}}}}]}})",
                                           numel, framework);
      const auto read = read_scenario(text, ".");
      ASSERT_TRUE(read.ok()) << read.error().text();
      const JudgedInFew few = judge_few(*read);
      EXPECT_EQ(classes(few.verdict), Set{"stale-gradient"}) << framework << " " << numel << "\n" << sentences(few.verdict);
      EXPECT_NE(sentences(few.verdict).find("(weight 1/256 instead of 0)"), std::string::npos) << framework << " " << numel << "\n" << sentences(few.verdict);
    }
}

// Drawn, and run on PyTorch: a report named classes that were not there, from weights that fitted some elements.
constexpr std::string_view once_invented[] = {
    R"({"name": "a", "world_size": 4, "parameters": [{"name": "p0", "numel": 2}, {"name": "p1", "numel": 19}, {"name": "p2", "numel": 8,
        "trainable": false}], "model_dtype": "bf16", "engine": {"framework": "ddp", "as_of": "2.13.0", "config": {"find_unused_parameters": true,
        "static_graph": true, "skip_all_reduce_unused_params": true, "comm_hook": "allreduce"}, "optimizer": {"type": "SGD", "lr": 1.0}},
        "gradients": {"kind": "probe"}, "contract": {"window": "since_last_step", "average_over": "world", "divide_by": "gradient_accumulation_steps"},
        "allow_open": true,
        "script": [{"zero_grad": "engine"}, {"backward": {}}, {"backward": {}}, {"backward": {}}, {"step": {}}, {"backward": {}}, {"backward": {}},
        {"backward": {}}, {"step": {"ranks": [2]}}, {"backward": {}}, {"backward": {}}, {"step": {}}]})",
    R"({"name": "a", "world_size": 4, "parameters": [{"name": "p0", "numel": 9}, {"name": "p1", "numel": 13, "used_by": "rank < 1"}], "model_dtype": "bf16",
        "engine": {"framework": "ddp", "as_of": "2.13.0", "config": {"bucket_cap_mb_list": [0.00006103515625], "find_unused_parameters": true,
        "comm_hook": "allreduce"}, "optimizer": {"type": "SGD", "lr": 1.0}}, "gradients": {"kind": "probe"}, "contract": {"window": "since_last_step",
        "average_over": "world", "divide_by": "window"}, "allow_open": true,
        "script": [{"forward": {}}, {"backward": {"of": 0}}, {"forward": {}}, {"backward": {"of": 1}}, {"forward": {}}, {"backward": {"of": 2}},
        {"forward": {}}, {"backward": {"of": 3}}, {"step": {}}, {"forward": {}}, {"backward": {"of": 0}}, {"forward": {}}, {"backward": {"of": 1}},
        {"forward": {}}, {"backward": {"of": 2}}, {"forward": {}}, {"backward": {"of": 3,
        "order": {"0": ["p1"]}}}, {"forward": {}}, {"backward": {"of": 4}}, {"forward": {}}, {"backward": {"of": 5, "order": {"2": ["p1"]}}}, {"step": {}}]})",
    R"({"name": "a", "world_size": 3, "parameters": [{"name": "p0", "numel": 17}], "model_dtype": "bf16", "engine": {"framework": "fsdp2", "as_of": "2.13.0",
        "config": {"reshard_after_forward": true, "offload": true, "force_sum_reduction_for_comms": true, "calls_unused_units": true},
        "optimizer": {"type": "SGD", "lr": 1.0}}, "gradients": {"kind": "probe"}, "contract": {"window": "since_last_step", "average_over": "world",
        "divide_by": "window"}, "allow_open": true, "script": [{"backward": {"uses": ["p0"]}}, {"event": {"name": "set_requires_gradient_sync",
        "value": true}}, {"backward": {}}, {"event": {"name": "set_is_last_backward", "value": true}}, {"backward": {}}, {"backward": {"ranks": [2],
        "uses": ["p0"]}}, {"step": {}}, {"backward": {}}, {"backward": {}}, {"backward": {}}, {"step": {}}]})",
    R"({"name": "a", "world_size": 3, "parameters": [{"name": "p0", "numel": 4}], "model_dtype": "fp32", "engine": {"framework": "fsdp2", "as_of": "2.13.0",
        "config": {"gradient_divide_factor": 4.0, "calls_unused_units": true, "grad_scaler": {"init_scale": 64.0}},
        "optimizer": {"type": "SGD", "lr": 1.0}}, "gradients": {"kind": "probe"}, "contract": {"window": "since_last_step", "average_over": "none",
        "divide_by": "gradient_accumulation_steps"}, "allow_open": true, "script": [{"backward": {}}, {"backward": {}}, {"step": {}}, {"step": {}},
        {"step": {}}, {"backward": {}}, {"backward": {}}, {"step": {}}]})",
    R"({"name": "a", "world_size": 4, "parameters": [{"name": "p0", "numel": 2}], "model_dtype": "fp32", "engine": {"framework": "deepspeed",
        "as_of": "0.19.8", "config": {"gradient_accumulation_steps": 1, "gradient_allreduce_op": "sum", "gradient_predivide_factor": 2.0,
        "data_types": {"grad_accum_dtype": "fp32"}, "gradient_clipping": 0.0, "zero_optimization": {"stage": 2, "reduce_scatter": false,
        "use_multi_rank_bucket_allreduce": false, "offload_optimizer": {"device": "cpu", "pin_memory": true}}},
        "optimizer": {"type": "SGD", "lr": 1.0}}, "gradients": {"kind": "probe"}, "contract": {"window": "since_last_step", "average_over": "none",
        "divide_by": "gradient_accumulation_steps"}, "allow_open": true, "script": [{"coalesce": [{"backward": {}}, {"backward": {}}]},
        {"coalesce": [{"backward": {}}, {"backward": {}}]}, {"backward": {}}, {"step": {}}, {"coalesce": [{"backward": {}}]},
        {"zero_grad": "optimizer"}, {"coalesce": [{"backward": {}}, {"backward": {}}]}, {"step": {}}]})",
    R"({"name": "a", "world_size": 4, "parameters": [{"name": "p0", "numel": 19}, {"name": "p1", "numel": 4}, {"name": "p2", "numel": 8}],
        "model_dtype": "fp32", "engine": {"framework": "fsdp1", "as_of": "2.13.0", "config": {"offload": true, "computes_on_cpu": true},
        "optimizer": {"type": "SGD", "lr": 1.0}}, "contract": {"window": "since_last_step", "average_over": "world", "divide_by": "tokens"}, "tokens": 1,
        "allow_open": true, "script": [{"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {}}]})",
};

// By step, rank, parameter, element and contribution. Only what is told.
std::map<std::array<std::uint64_t, 7>, double> told_weights(const ref::Verdict& verdict) {
  std::map<std::array<std::uint64_t, 7>, double> out;
  for (const ref::AppliedRow& row : verdict.applied)
    for (std::size_t k = 0; k < row.columns.size(); ++k) {
      if (row.row.open_at(k)) continue;
      for (const ref::ElementRange& range : row.row.elements)
        for (std::uint64_t e = range.begin; e < range.end; ++e)
          out[{row.step, row.rank, range.parameter, e, row.columns[k].step, row.columns[k].rank, row.columns[k].micro_batch}] = row.row.observed[k];
    }
  return out;
}

TEST(few_runs, invent_no_class_and_no_weight_where_weights_only_fit) {
  for (const std::string_view text : once_invented) {
    const auto read = read_scenario(std::string(text), ".");
    ASSERT_TRUE(read.ok()) << read.error().text();
    const Timeline timeline = make_timeline(*read).value();
    const TwoVerdicts verdicts = judge_twice(*read, timeline, [&] { return make_producer(*read, timeline); });
    EXPECT_FALSE(verdicts.few.findings.empty());
    EXPECT_EQ(verdicts.invented(), Set{}) << text << "\n" << sentences(verdicts.few);
    const auto there = told_weights(verdicts.full);
    for (const auto& [which, weight] : told_weights(verdicts.few)) {
      const auto found = there.find(which);
      EXPECT_EQ(weight, found == there.end() ? 0 : found->second) << "step " << which[0] << ", rank " << which[1] << ", element " << which[3] << " of parameter " << which[2];
    }
  }
}

// The two elements of p0 have none of the last contributions in the run that is held to the books. Its values are wrong all the same.
TEST(few_runs, tell_weights_that_the_first_of_them_does_not_show) {
  const Scenario s = read_scenario(R"({"name": "a", "world_size": 4, "parameters": [{"name": "p0", "numel": 2}, {"name": "p1", "numel": 3}], "model_dtype": "bf16",
    "engine": {"framework": "deepspeed", "as_of": "0.19.8", "config": {"gradient_accumulation_steps": 3, "gradient_allreduce_op": "sum",
    "data_types": {"grad_accum_dtype": "fp32"}, "gradient_clipping": 0.0, "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}},
    "optimizer": {"type": "SGD", "lr": 1.0}}, "contract": {"average_over": "none", "divide_by": "gradient_accumulation_steps"},
    "script": [{"backward": {}}, {"step": {}}, {"backward": {}}, {"zero_grad": "optimizer"}, {"step": {}}, {"backward": {}},
    {"set_gradient": {"parameter": "p0", "times": 0.5}}, {"step": {}}]})",
                                   ".")
                         .value();
  const JudgedInFew few = judge_few(s);
  EXPECT_EQ(classes(few.verdict), Set{"wrong-scale"}) << sentences(few.verdict);
  EXPECT_NE(sentences(few.verdict).find("micro-batch 2 of ranks 0-3 counted with a wrong scale (weight 1/3 instead of 1/6)"), std::string::npos) << sentences(few.verdict);
}

// One element is one equation a run.
TEST(few_runs, are_more_where_few_elements_have_many_weights) {
  const Scenario s = read_scenario(R"({"name": "a", "world_size": 4, "parameters": [{"name": "w", "numel": 1}], "model_dtype": "fp32",
    "engine": {"framework": "ddp", "as_of": "2.13.0", "config": {}, "optimizer": {"type": "SGD", "lr": 1.0}},
    "script": [{"backward": {}}, {"no_sync": [{"backward": {}}, {"backward": {}}, {"backward": {}}]}, {"step": {}}]})",
                                   ".")
                         .value();
  const JudgedInFew few = judge_few(s);
  EXPECT_EQ(classes(few.verdict), Set{"missing-reduction"}) << sentences(few.verdict);
  EXPECT_GT(few.runs, 4u);
  EXPECT_LE(few.runs, 13u);
}

// Whatever it is, it is no right sum.
TEST(few_runs, report_numbers_that_nothing_explains_and_say_so) {
  for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16}) {
    std::uint32_t run = 0;
    const JudgedInFew few = judge_few(four_micro_batches(dtype), [&](const Snapshot& x) {
      if (x.role == Role::applied_gradient && x.rank == 1 && x.step == 1 && x.linear)
        for (std::size_t i = 0; i < x.values->size(); ++i) (*x.values)[i] += static_cast<double>((i * 7 + ++run) % 5 + 1);
    });
    ASSERT_EQ(classes(few.verdict), Set{"rounding-excess"}) << sentences(few.verdict);
    EXPECT_EQ(few.runs, 4u);
    EXPECT_NE(sentences(few.verdict).find("leave open"), std::string::npos);
    EXPECT_FALSE(few.verdict.unexplained.empty());
  }
}

bool meet(const std::vector<ref::ElementRange>& elements, const ref::ElementRange& range) {
  return std::any_of(elements.begin(), elements.end(), [&](const ref::ElementRange& e) { return e.parameter == range.parameter && e.begin < range.end && range.begin < e.end; });
}

// A hundredth too much is within what rounding may make of a sum in 16 bits, or of a lone contribution, and not within what it may make of this value.
TEST(few_runs, do_not_show_weights_of_a_wrong_value_as_due) {
  Scenario s = four_micro_batches();
  deepspeed_config(s).gradient_accumulation_steps = 3;
  s.script = {repeat(2, managed(3))};
  for (const std::uint32_t alone_max : {0u, ref::OracleOptions{}.alone_max}) {
    const ref::Verdict few = judge_few(
                                 s,
                                 [](const Snapshot& x) {
                                   if (x.role != Role::applied_gradient || x.rank != 0 || x.step != 1 || !x.linear) return;
                                   for (double& value : *x.values) value *= 1.01;
                                 },
                                 alone_max)
                                 .verdict;
    ASSERT_EQ(few.findings.size(), 1u) << sentences(few);
    std::uint64_t rows = 0;
    for (const ref::AppliedRow& row : few.applied)
      for (const ref::ElementRange& wrong : few.findings.front().elements)
        if (row.rank == 0 && row.step == 1 && meet(row.row.elements, wrong)) {
          EXPECT_TRUE(!row.row.balances() || row.row.inconclusive) << alone_max << "\n" << sentences(few);
          ++rows;
        }
    EXPECT_GT(rows, 0u);
  }
}

TEST(few_runs, tell_a_gradient_of_the_window_before) {
  std::map<std::tuple<std::uint32_t, bool>, std::vector<double>> before;
  const JudgedInFew few = judge_few(four_micro_batches(), [&](const Snapshot& x) {
    if (x.role != Role::applied_gradient) return;
    const std::vector<double> mine = *x.values;
    if (x.step == 1)
      for (std::size_t i = 0; i < mine.size(); ++i) (*x.values)[i] += before[{x.rank, x.linear}][i];
    before[{x.rank, x.linear}] = mine;
  });
  ASSERT_TRUE(classes(few.verdict).contains("stale-gradient")) << sentences(few.verdict);
  for (const ref::Finding& f : few.verdict.findings)
    if (f.finding == ref::FindingClass::stale_gradient)
      for (const ref::Miscounted& m : f.contributions) EXPECT_EQ(m.contribution.step, 0u);
}

TEST(few_runs, follow_conditions_of_use) {
  Scenario s = four_micro_batches(Dtype::float32);
  s.parameters[1].used_by = *Predicate::parse("micro_batch != 1", "");
  s.parameters[2].used_by = *Predicate::parse("step == 0 and micro_batch == 0", "");
  for (const std::uint32_t stage : {0u, 1u, 2u}) {
    deepspeed_config(s).zero.stage = stage;
    EXPECT_EQ(classes(judge_few(s).verdict), Set{}) << "stage " << stage;
  }
  deepspeed_config(s).zero.stage = 3;  // a parameter unused in a window keeps its partition of the window before
  EXPECT_EQ(classes(judge_few(s).verdict), Set{"stale-gradient"});
}

// The norm that refuses to be zero is of the values alone: a linear run steps.
TEST(few_runs, judge_no_window_that_the_loop_did_not_come_to) {
  const Scenario s = load_scenario(std::filesystem::path(GRADLEDGER_SOURCE_DIR) / "scenarios/live/bf16-optimizer-refuses-a-zero-norm.json").value();
  EXPECT_EQ(judge(s).coverage.windows_judged, 0u) << "by weights";
  EXPECT_EQ(judge_tampered(s, [](const Snapshot&) {}).coverage.windows_judged, 0u) << "by numbers";
  EXPECT_EQ(judge_few(s).verdict.coverage.windows_judged, 0u);
}

TEST(few_runs, do_not_show_weights_of_an_approximation_as_due) {
  const Scenario s = load_scenario(std::filesystem::path(GRADLEDGER_SOURCE_DIR) / "scenarios/ddp/powersgd-approximates.json").value();
  const ref::Verdict few = judge_few(s).verdict;
  EXPECT_GT(few.inconclusive_rows.by_reason[static_cast<std::size_t>(ref::NotTold::approximated)], 0u);
  EXPECT_TRUE(std::any_of(few.applied.begin(), few.applied.end(), [](const ref::AppliedRow& row) { return row.row.inconclusive == ref::NotTold::approximated; }));
}

TEST(few_runs, say_what_they_leave_out) {
  const JudgedInFew few = judge_few(four_micro_batches());
  EXPECT_TRUE(few.verdict.few_runs);
  EXPECT_FALSE(few.verdict.left_out.empty());
  EXPECT_TRUE(judge(four_micro_batches()).left_out.empty());
}

// A framework that asks for a norm above zero: where a probe leaves none, rank 0 raises in the step.
class RaisesOnProbes final : public Producer {
 public:
  RaisesOnProbes(Producer& inner, std::uint32_t event) : inner_(inner), event_(event) {}

  std::string_view name() const override { return "raises on probes"; }
  Capabilities capabilities() const override { return {.applied_gradients = true, .accumulators = true, .few_runs = true}; }
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override {
    if (!options.linear) return inner_.run(source, options, sink);
    Cut cut(sink, event_);
    const RunSummary summary = inner_.run(source, options, cut);
    sink.engine_error({0, event_, "AssertionError", ""});
    return summary;
  }

 private:
  // All that rank 0 shows before the event that it stops in.
  class Cut final : public TraceSink {
   public:
    Cut(TraceSink& to, std::uint32_t event) : to_(to), event_(event) {}
    void observe(const Observation& o) override {
      if (o.rank != 0 || o.event < event_) to_.observe(o);
    }
    void event_done(std::uint32_t rank, std::uint32_t event) override {
      if (rank != 0 || event < event_) to_.event_done(rank, event);
    }

   private:
    TraceSink& to_;
    const std::uint32_t event_;
  };

  Producer& inner_;
  const std::uint32_t event_;
};

TEST(few_runs, do_not_take_for_left_out_what_a_rank_did_not_live_to_show) {
  Scenario s = four_micro_batches();
  s.script = {repeat(1, managed(4))};
  const auto timeline = make_timeline(s);
  TamperingProducer inner(s, *timeline, [](const Snapshot&) {});
  RaisesOnProbes producer(inner, static_cast<std::uint32_t>(timeline->events.size() - 1));
  const ref::Verdict verdict = ref::judge(s, *timeline, producer, {});
  EXPECT_EQ(classes(verdict), Set{}) << sentences(verdict);
  const std::string said = "what ranks hold and apply at events that a run on probes did not come through";
  EXPECT_EQ(std::count(verdict.left_out.begin(), verdict.left_out.end(), said), 1);
}

// DistributedDataParallel divides what is an average already by eight once more: three bits that sums of numbers in bf16 need besides.
TEST(few_runs, leave_room_for_averages_that_are_reduced_again) {
  nlohmann::json low = loop_around("ddp", R"([{"backward": {}}, {"backward": {}}, {"backward": {}}, {"step": {}}])");
  low["world_size"] = 8;
  nlohmann::json on_the_wire = low;
  low["model_dtype"] = "bf16";
  on_the_wire["engine"]["config"]["comm_hook"] = "bf16_wrapper";
  for (const nlohmann::json& document : {low, on_the_wire}) {
    const ref::Verdict verdict = judge_few(read_scenario(document.dump(), ".").value()).verdict;
    EXPECT_TRUE(verdict.clean()) << sentences(verdict);
  }
}

}  // namespace
}  // namespace gradledger::testing
