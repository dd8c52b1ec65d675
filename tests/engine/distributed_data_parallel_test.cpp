// The rules of DistributedDataParallel one by one; that their sum is PyTorch is what the recorded runs show.
#include <gtest/gtest.h>

#include <map>

#include "ref/dtype_facts.h"
#include "ref/probes.h"
#include "sim/execution/host_executor.h"
#include "sim/frameworks/torch/ddp/admission.h"
#include "sim/frameworks/torch/ddp/buckets.h"
#include "sim/frameworks/torch/ddp/config_json.h"
#include "sim/frameworks/torch/ddp/contract.h"
#include "sim/frameworks/torch/ddp/distributed_data_parallel.h"

namespace gradledger::torch {
namespace {

using nlohmann::json;

ScriptItem item(ScriptKind kind) {
  ScriptItem out;
  out.kind = kind;
  return out;
}

ScriptItem backward_of(std::uint32_t forward) {
  ScriptItem out = item(ScriptKind::backward);
  out.of = forward;
  return out;
}

ScriptItem no_sync(std::vector<ScriptItem> items) {
  ScriptItem out = item(ScriptKind::no_sync);
  out.items = std::move(items);
  return out;
}

// What each event of rank 0 sent, and where param.grad of the first parameter was after it.
struct Seen final : TraceSink {
  void collective(const CollectiveRecord& c) override {
    if (c.rank == 0)
      calls[c.event] += std::string(calls[c.event].empty() ? "" : ", ") + std::string(name_of(c.kind)) + " " + std::to_string(c.numel) + " " + std::string(name_of(c.dtype));
  }
  void engine_error(const EngineErrorRecord& e) override { errors[e.event] = e.type + ": " + e.message; }
  void step_fact(const StepRecord& s) override {
    if (s.rank == 0 && s.fact == StepFact::loss_scale) scales.push_back(s.value);
  }
  void unwritten(const UnwrittenRecord& u) override { unwritten_reads.push_back(u.buffer); }
  void observe(const Observation& o) override {
    if (o.rank != 0 || o.pieces.front().parameter != 0) return;
    double first = 0;
    if (o.role == Role::applied_gradient || o.role == Role::parameter) ref::read_stored(o.pieces.front().dtype, o.pieces.front().data, 1, &first);
    if (o.role == Role::applied_gradient) applied.emplace_back(o.pieces.front().dtype, first);
    if (o.role == Role::parameter) weights.push_back(first);
  }

  std::map<std::uint32_t, std::string> calls, errors;
  std::vector<double> scales;
  std::vector<std::string> unwritten_reads;
  std::vector<std::pair<Dtype, double>> applied;  // the first element of the first parameter, as a step is given it
  std::vector<double> weights;                    // that element behind steps
};

// One number for every element of a backward, and weights of 1.
struct OneNumber final : GradientSource {
  explicit OneNumber(std::vector<double> of) : by_backward(std::move(of)) {}
  void gradient(std::uint32_t backward, std::uint32_t, std::uint32_t, std::uint64_t, std::span<double> out) const override {
    std::fill(out.begin(), out.end(), by_backward[backward]);
  }
  void initial_parameter(std::uint32_t, std::uint64_t, std::span<double> out) const override { std::fill(out.begin(), out.end(), 1.0); }

  std::vector<double> by_backward;
};

// Two parameters of 4 and 6 elements on two ranks.
Scenario two_parameters(std::vector<ScriptItem> script, const std::string& used_by) {
  Scenario s;
  s.world_size = 2;
  s.parameters = {{"w0", 4, std::nullopt}, {"w1", 6, std::nullopt}};
  if (!used_by.empty()) s.parameters[0].used_by = Predicate::parse(used_by, "").value();
  s.after_error = AfterError::go_on;
  s.gradients.kind = GradientKind::normal;
  s.script = std::move(script);
  return s;
}

Seen run(const Scenario& s, const DdpConfig& config, const GradientSource& source) {
  EXPECT_FALSE(ddp_refusal(s, config));
  const auto timeline = unroll(s, s.script, ddp_contract(s, config));
  EXPECT_TRUE(timeline.ok());
  Seen seen;
  HostExecutor(s, *timeline, CollectiveArithmetic::gloo, [&](const EngineContext& context) {
    return std::make_unique<DistributedDataParallel>(context, config);
  }).run(source, {}, seen);
  EXPECT_EQ(seen.unwritten_reads, std::vector<std::string>{});
  return seen;
}

Seen run(std::vector<ScriptItem> script, const DdpConfig& config, const GradientSource* given = nullptr, const std::string& used_by = {}) {
  const Scenario s = two_parameters(std::move(script), used_by);
  return run(s, config, given ? *given : *ref::value_source(s, unroll(s, s.script, ddp_contract(s, config)).value(), s.gradients.kind, 1));
}

const std::string whole = "all_reduce 10 fp32";
const std::string rebuild = "broadcast 3 int32, broadcast 1 int32, ";

TEST(ddp_buckets, are_closed_once_they_have_their_limit) {
  const std::vector<SizedParameter> parameters{{0, 10}, {1, 10}, {2, 10}, {3, 10}};
  EXPECT_EQ(rebuilt_buckets(parameters, {41, 80}), (BucketAssignment{{0, 1}, {2, 3}}));
  EXPECT_EQ(rebuilt_buckets(parameters, {40, 41}), (BucketAssignment{{0}, {1, 2}, {3}}));
}

TEST(ddp_buckets, of_the_constructor_are_reduced_last_first_and_hold_one_dtype_each) {
  const std::vector<SizedParameter> parameters{{0, 10}, {1, 10, Dtype::bfloat16}, {2, 10}, {3, 10, Dtype::bfloat16}};
  EXPECT_EQ(initial_buckets(parameters, {1000}), (BucketAssignment{{1, 3}, {0, 2}}));
}

TEST(ddp_buckets, have_a_small_first_one_unless_a_cap_is_given_and_one_in_all_before_the_rebuild) {
  DdpConfig config;
  EXPECT_EQ(rebuilt_limits(config), (BucketLimits{1u << 20, 25u << 20}));
  EXPECT_EQ(initial_limits(config).front(), ~std::uint64_t{0});
  config.bucket_cap_mb = 2;
  EXPECT_EQ(rebuilt_limits(config), (BucketLimits{2u << 20}));
  config.find_unused_parameters = true;
  EXPECT_EQ(initial_limits(config), (BucketLimits{2u << 20}));
}

TEST(ddp, reduces_where_the_forward_ran_outside_of_no_sync_wherever_the_backward_runs) {
  const Seen seen = run({item(ScriptKind::forward), no_sync({backward_of(0), item(ScriptKind::forward)}), backward_of(1)}, {});
  // forward, enter, backward, forward, exit, backward
  EXPECT_EQ(seen.calls, (std::map<std::uint32_t, std::string>{{2, whole}, {3, rebuild.substr(0, rebuild.size() - 2)}}));
}

TEST(ddp, does_not_reduce_the_second_backward_of_two_whose_forwards_both_ran_before) {
  const Seen seen = run({item(ScriptKind::forward), item(ScriptKind::forward), backward_of(0), backward_of(1)}, {});
  EXPECT_EQ(seen.calls, (std::map<std::uint32_t, std::string>{{2, whole}}));
}

TEST(ddp, reduces_one_backward_of_a_sum_once) {
  ScriptItem sum = item(ScriptKind::backward);
  sum.sum_of = 3;
  EXPECT_EQ(run({sum}, {}).calls, (std::map<std::uint32_t, std::string>{{0, whole}}));
}

TEST(ddp, rebuilds_its_buckets_once_and_not_where_it_searches_for_unused_parameters) {
  const std::vector<ScriptItem> three(3, item(ScriptKind::backward));
  EXPECT_EQ(run(three, {}).calls, (std::map<std::uint32_t, std::string>{{0, whole}, {1, rebuild + whole}, {2, whole}}));
  const std::string with_map = whole + ", all_reduce 2 int32";
  EXPECT_EQ(run(three, {.find_unused_parameters = true}).calls, (std::map<std::uint32_t, std::string>{{0, with_map}, {1, with_map}, {2, with_map}}));
}

TEST(ddp, raises_at_the_forward_behind_a_reduction_that_an_exception_left) {
  ScriptItem raises = item(ScriptKind::backward);
  raises.raises_after = 1;
  const Seen seen = run({raises, item(ScriptKind::step), item(ScriptKind::backward)}, {});
  EXPECT_TRUE(seen.calls.empty());
  EXPECT_NE(seen.errors.at(2).find("Expected to have finished reduction in the prior iteration"), std::string::npos);
  EXPECT_NE(seen.errors.at(2).find("Parameter indices which did not receive grad for rank"), std::string::npos);
}

TEST(ddp, does_not_mind_an_exception_before_the_first_gradient_or_in_a_backward_without_reduction) {
  ScriptItem raises = item(ScriptKind::backward);
  raises.raises_after = 0;
  EXPECT_EQ(run({raises, item(ScriptKind::backward)}, {}).calls.at(1), whole);
  raises.raises_after = 1;
  EXPECT_EQ(run({no_sync({raises}), item(ScriptKind::backward)}, {}).calls.at(3), whole);
}

TEST(ddp, with_static_graph_does_not_survive_a_first_backward_inside_of_no_sync) {
  const Seen seen = run({no_sync({item(ScriptKind::backward)})}, {.static_graph = true});
  EXPECT_NE(seen.errors.at(1).find("expect_autograd_hooks_ INTERNAL ASSERT FAILED"), std::string::npos);
  EXPECT_EQ(seen.calls.at(1), "all_reduce 2 int32, " + whole);
}

TEST(ddp, keeps_buckets_of_another_dtype_on_the_wire_than_in_memory) {
  EXPECT_EQ(run({item(ScriptKind::backward)}, {.comm_hook = CommHook::bf16_compress}).calls.at(0), "all_reduce 10 bf16");
  EXPECT_TRUE(run({item(ScriptKind::backward)}, {.comm_hook = CommHook::noop}).calls.empty());
}

DdpConfig compressing(PowerSgdConfig power_sgd = {.start_powerSGD_iter = 2, .min_compression_rate = 1}) {
  return {.comm_hook = CommHook::power_sgd, .power_sgd = power_sgd, .rows = {{"w1", 2}}};
}

// Rank 0 leaves the first parameter out of its first backward, which is the second of rank 1.
TEST(ddp, adds_a_gradient_of_fp32_to_one_that_a_wrapped_hook_left_in_fp16_and_rounds_the_sum_alone) {
  ScriptItem of_rank_1 = item(ScriptKind::backward);
  of_rank_1.ranks = {1};
  const std::vector<ScriptItem> script{no_sync({of_rank_1}), item(ScriptKind::backward), no_sync({item(ScriptKind::backward)}), item(ScriptKind::step)};
  // 1 + 2^-11 + 2^-23 lies above the middle of two numbers of fp16, and without its last bit in the middle.
  const OneNumber given({0.0, 2.0, 0x1.001p-11});
  DdpConfig config;
  config.find_unused_parameters = true;
  config.comm_hook = CommHook::fp16_wrapper;
  EXPECT_EQ(run(script, config, &given, "micro_batch != 0").applied, (std::vector<std::pair<Dtype, double>>{{Dtype::float16, 0x1.004p0}}));
  config.comm_hook = CommHook::fp16_compress;
  EXPECT_EQ(run(script, config, &given, "micro_batch != 0").applied, (std::vector<std::pair<Dtype, double>>{{Dtype::float32, 0x1.002002p0}}));
}

// Rank 0 has no gradient for the first parameter, and gets one in fp16.
TEST(ddp, refuses_what_a_wrapped_hook_left_in_fp16_where_gradients_are_unscaled) {
  DdpConfig config;
  config.find_unused_parameters = true;
  config.comm_hook = CommHook::fp16_wrapper;
  config.grad_scaler.emplace();
  const std::vector<ScriptItem> script{item(ScriptKind::backward), item(ScriptKind::step)};
  EXPECT_EQ(run(script, config, nullptr, "rank == 1").errors, (std::map<std::uint32_t, std::string>{{1, "ValueError: Attempting to unscale FP16 gradients."}}));
  config.comm_hook = CommHook::fp16_compress;
  EXPECT_TRUE(run(script, config, nullptr, "rank == 1").errors.empty());
}

// adamw.py: param.mul_(1 - lr * weight_decay) comes before the moment that refuses the gradient.
TEST(ddp, decays_a_weight_before_adamw_refuses_a_gradient_of_16_bits) {
  Scenario s = two_parameters({item(ScriptKind::backward), item(ScriptKind::step)}, "rank == 1");
  s.engine.optimizer = {.type = OptimizerType::adamw, .learning_rate = 0.5, .weight_decay = 0.5};
  DdpConfig config;
  config.find_unused_parameters = true;
  config.comm_hook = CommHook::fp16_wrapper;
  const OneNumber given({1.0});
  const Seen seen = run(s, config, given);
  EXPECT_EQ(seen.errors, (std::map<std::uint32_t, std::string>{{1, "RuntimeError: expected dtype float for `end` but got dtype c10::Half"}}));
  EXPECT_EQ(seen.weights, std::vector<double>{0.75});
}

TEST(ddp, sends_the_factors_of_matrices_and_the_rest_in_one_piece_from_the_iteration_at_which_power_sgd_starts) {
  const std::vector<ScriptItem> four(4, item(ScriptKind::backward));
  const std::string factors = "all_reduce 4 fp32, all_reduce 2 fp32, all_reduce 3 fp32";
  EXPECT_EQ(run(four, compressing()).calls, (std::map<std::uint32_t, std::string>{{0, whole}, {1, rebuild + whole}, {2, factors}, {3, factors}}));
}

TEST(ddp, counts_for_power_sgd_the_backwards_that_are_reduced) {
  const Seen seen = run({no_sync({item(ScriptKind::backward), item(ScriptKind::backward)}), item(ScriptKind::backward), item(ScriptKind::backward)}, compressing());
  EXPECT_EQ(seen.calls, (std::map<std::uint32_t, std::string>{{4, whole}, {5, rebuild + whole}}));
}

TEST(ddp, compresses_a_matrix_only_where_power_sgd_saves_enough) {
  const std::vector<ScriptItem> three(3, item(ScriptKind::backward));
  EXPECT_EQ(run(three, compressing({.start_powerSGD_iter = 2, .min_compression_rate = 1.2})).calls.at(2), "all_reduce 10 fp32, all_reduce 0 fp32, all_reduce 0 fp32");
  EXPECT_EQ(run(three, compressing({.matrix_approximation_rank = 9, .start_powerSGD_iter = 2, .min_compression_rate = 0.5})).calls.at(2),
            "all_reduce 0 fp32, all_reduce 8 fp32, all_reduce 7 fp32");
}

TEST(ddp, refuses_power_sgd_where_pytorch_does) {
  Scenario s;
  s.world_size = 2;
  s.parameters = {{"w0", 4, std::nullopt}, {"w1", 6, std::nullopt}};
  EXPECT_FALSE(ddp_refusal(s, compressing()));
  EXPECT_FALSE(ddp_refusal(s, compressing({.start_powerSGD_iter = 0, .use_error_feedback = false, .warm_start = false})));
  const auto early = ddp_refusal(s, compressing({.start_powerSGD_iter = 1, .warm_start = false}));
  ASSERT_TRUE(early);
  EXPECT_EQ(early->where, "/engine/config/PowerSGDState/start_powerSGD_iter");
  EXPECT_NE(early->message.find("ValueError: Expect `start_powerSGD_iter` > 1"), std::string::npos);
  s.parameters.push_back({"none", 0, std::nullopt});
  EXPECT_EQ(ddp_refusal(s, compressing())->where, "/parameters/2/numel");
  DdpConfig uneven = compressing();
  uneven.rows = {{"w1", 4}};
  EXPECT_EQ(ddp_refusal(s, uneven)->where, "/engine/config/rows/w1");
  uneven.rows = {{"w7", 4}};
  EXPECT_EQ(ddp_refusal(s, uneven)->where, "/engine/config/rows");
}

TEST(ddp, lets_a_grad_scaler_grow_after_its_interval_and_refuses_to_unscale_twice) {
  DdpConfig config;
  config.grad_scaler = {.init_scale = 8, .growth_interval = 2};
  const std::vector<ScriptItem> window{item(ScriptKind::backward), item(ScriptKind::step)};
  EXPECT_EQ(run({window[0], window[1], window[0], window[1]}, config).scales, (std::vector<double>{8, 16}));
  const Seen seen = run({window[0], item(ScriptKind::unscale), item(ScriptKind::unscale)}, config);
  EXPECT_NE(seen.errors.at(2).find("unscale_() has already been called"), std::string::npos);
}

TEST(ddp_config, reads_what_it_writes) {
  const json all = json::parse(R"({"bucket_cap_mb": 2.5, "static_graph": true, "gradient_as_bucket_view": true, "comm_hook": "fp16_wrapper",
                                   "delay_all_reduce": {"params": ["a"], "hook": "b"}, "grad_scaler": {"init_scale": 4.0, "growth_interval": 3}})");
  const auto config = ddp_config_from_json(all, "/engine/config");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(json::parse(ddp_config_to_json(*config).dump()), all);
  EXPECT_EQ(*ddp_config_from_json(ddp_config_to_json(DdpConfig{}), ""), DdpConfig{});
  const json compressed = json::parse(R"({"comm_hook": "powerSGD", "rows": {"a": 3}, "PowerSGDState": {"matrix_approximation_rank": 4, "start_powerSGD_iter": 7,
                                          "min_compression_rate": 1.5, "use_error_feedback": false, "warm_start": false}})");
  EXPECT_EQ(json::parse(ddp_config_to_json(*ddp_config_from_json(compressed, "")).dump()), compressed);
}

TEST(ddp_config, names_the_place_of_what_is_wrong) {
  const auto place = [](const char* text) {
    const auto config = ddp_config_from_json(json::parse(text), "/engine/config");
    return config ? std::string("nothing") : config.error().where;
  };
  EXPECT_EQ(place(R"({"static_graph": 1})"), "/engine/config/static_graph");
  EXPECT_EQ(place(R"({"broadcast": true})"), "/engine/config/broadcast");
  EXPECT_EQ(place(R"({"comm_hook": "powersgd"})"), "/engine/config/comm_hook");
  EXPECT_EQ(place(R"({"comm_hook": ["allreduce", "noop"]})"), "/engine/config/comm_hook");
  EXPECT_EQ(place(R"({"comm_hook": "noop", "PowerSGDState": {}})"), "/engine/config/PowerSGDState");
  EXPECT_EQ(place(R"({"comm_hook": "powerSGD", "PowerSGDState": {"matrix_approximation_rank": 0}})"), "/engine/config/PowerSGDState/matrix_approximation_rank");
  EXPECT_EQ(place(R"({"bucket_cap_mb_list": [1, 0]})"), "/engine/config/bucket_cap_mb_list/1");
  EXPECT_EQ(place(R"({"grad_scaler": {"init_scale": 3}})"), "/engine/config/grad_scaler/init_scale");
  EXPECT_EQ(place(R"({"grad_scaler": {"growth_factor": 1}})"), "/engine/config/grad_scaler/growth_factor");
  EXPECT_EQ(place(R"({"grad_scaler": {"backoff_factor": 1}})"), "/engine/config/grad_scaler/backoff_factor");
  EXPECT_EQ(place(R"({"delay_all_reduce": {"params": [], "hook": "a"}})"), "/engine/config/delay_all_reduce/params");
}

TEST(ddp_contract, averages_over_the_world_and_updates_at_every_step) {
  Scenario s;
  s.world_size = 3;
  s.parameters = {{"w", 4, std::nullopt}};
  const Contract contract = ddp_contract(s, {});
  EXPECT_EQ(contract.average_divisor, Rational(3));
  EXPECT_EQ(contract.divisor, Rational(1));
  EXPECT_FALSE(contract.boundary.counted);
  EXPECT_FALSE(contract.approximation);
}

TEST(ddp_contract, calls_what_power_sgd_compresses_an_approximation_and_bounds_no_value_that_error_feedback_reaches) {
  Scenario s;
  s.world_size = 2;
  s.parameters = {{"w0", 4, std::nullopt}, {"w1", 6, std::nullopt}};
  EXPECT_EQ(ddp_contract(s, compressing()).approximation, (Approximation{{false, true}, {true, true}, 2}));
  const PowerSgdConfig plain{.start_powerSGD_iter = 0, .min_compression_rate = 1, .use_error_feedback = false, .warm_start = false};
  EXPECT_EQ(ddp_contract(s, compressing(plain)).approximation, (Approximation{{false, true}, {false, true}, 0}));
}

TEST(ddp_admission, refuses_what_pytorch_refuses_and_what_is_not_modelled) {
  Scenario s;
  s.world_size = 2;
  s.parameters = {{"w", 4, std::nullopt}};
  DdpConfig config;
  config.delay_all_reduce = DelayedAllReduce{{"w"}, "w"};
  EXPECT_NE(ddp_refusal(s, config)->message.find("must be on the same type of devices"), std::string::npos);
  Scenario with_frozen = s;
  with_frozen.parameters.push_back({"frozen", 4, std::nullopt});
  with_frozen.parameters.back().trainable = false;
  config.delay_all_reduce = DelayedAllReduce{{"frozen"}, "w"};
  EXPECT_EQ(ddp_refusal(with_frozen, config)->where, "/engine/config/delay_all_reduce/params");
  config.delay_all_reduce = DelayedAllReduce{{"w"}, "frozen"};
  EXPECT_EQ(ddp_refusal(with_frozen, config)->where, "/engine/config/delay_all_reduce/hook");
  s.script = {no_sync({item(ScriptKind::set_boundary)})};
  EXPECT_EQ(ddp_refusal(s, {})->where, "/script/0/no_sync/0");
  s.script = {item(ScriptKind::unscale)};
  EXPECT_EQ(ddp_refusal(s, {})->where, "/script/0");
}

}  // namespace
}  // namespace gradledger::torch
