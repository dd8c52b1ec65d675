// The rules of Megatron-FSDP one by one; that their sum is the package is what the recorded runs show.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/frameworks/framework.h"
#include "sim/frameworks/history.h"
#include "sim/frameworks/megatron_fsdp/admission.h"
#include "sim/frameworks/megatron_fsdp/config_json.h"
#include "sim/frameworks/megatron_fsdp/contract.h"
#include "sim/frameworks/megatron_fsdp/megatron_fsdp_engine.h"
#include "sim/frameworks/megatron_fsdp/methods.h"
#include "sim/frameworks/megatron_fsdp/setup.h"
#include "tests/engine/sharded_run.h"
#include "tests/support/on_weights.h"

namespace gradledger::megatron_fsdp {
namespace {

using nlohmann::json;
using testing::sharded_scenario;
using testing::ShardedRun;

ScriptItem item(ScriptKind kind) {
  ScriptItem out;
  out.kind = kind;
  return out;
}

ScriptItem call(std::string_view name, const char* arguments = "{}") {
  ScriptItem out = item(ScriptKind::of_framework);
  out.event = {std::string(name), FrameworkValue(call_from_json(name, json::parse(arguments), "").value()), false, false, std::nullopt};
  return out;
}

ScriptItem no_sync(std::vector<ScriptItem> items) {
  ScriptItem out = item(ScriptKind::no_sync);
  out.items = std::move(items);
  return out;
}

const ScriptItem backward = item(ScriptKind::backward), step = item(ScriptKind::step), finish = call(finish_event);

MegatronFsdpConfig config_of(const char* text) {
  json object = json::parse(text);
  if (!object.contains("units") && !object.contains("wrap")) object["units"] = json::parse(R"([["w1"], ["w2"]])");
  return megatron_fsdp_config_from_json(object, "").value();
}

ShardedRun run_with_gathers(std::vector<ScriptItem> script, const char* config_text, const char* release = "0.6.1") {
  Scenario s = sharded_scenario(std::move(script));
  s.engine.as_of.base = release;
  s.groups = {{"copies", {{0, 1}}}, {"shard", {{0}, {1}}}};
  const MegatronFsdpConfig config = config_of(config_text);
  EXPECT_FALSE(megatron_fsdp_refusal(s, config));
  return testing::sharded_run(
      s, megatron_fsdp_contract(s, config),
      [&](const EngineContext& context) { return std::make_unique<MegatronFsdpEngine>(context, config, behaviour_of(s.engine.as_of).value()); },
      [](const CollectiveCall& c) { return std::string(c.kind == CollectiveKind::reduce_scatter ? "scatter" : "all") + (c.op == ReduceOp::premultiplied_sum ? " scaled" : ""); });
}

// Of each event the calls that are gathers of weights, or those that are none; events that have such a call.
std::map<std::uint32_t, std::string> calls_of(const ShardedRun& seen, bool gathers) {
  std::map<std::uint32_t, std::string> out;
  for (const auto& [event, calls] : seen.calls)
    for (std::size_t from = 0; from < calls.size();) {
      const std::size_t end = std::min(calls.find(", ", from), calls.size());
      if (const std::string one = calls.substr(from, end - from); one.starts_with("gather") == gathers) out[event] += (out[event].empty() ? "" : ", ") + one;
      from = end + 2;
    }
  return out;
}

ShardedRun run(std::vector<ScriptItem> script, const char* config_text, const char* release = "0.6.1") {
  ShardedRun seen = run_with_gathers(std::move(script), config_text, release);
  seen.calls = calls_of(seen, false);
  return seen;
}

ScriptItem using_only(std::vector<std::string> parameters) {
  ScriptItem out = backward;
  out.uses = std::move(parameters);
  return out;
}

std::string gathers(std::vector<ScriptItem> script, std::uint32_t event, const char* config_text = "{}", const char* release = "0.6.1") {
  return calls_of(run_with_gathers(std::move(script), config_text, release), true)[event];
}

// w0 is the root's, 2 elements a rank; w1 and w2 are a unit each, of 3. A forward gathers all that is behind, and a backward all that is before.
TEST(megatron_fsdp_gathers, go_ahead_through_the_whole_model) {
  EXPECT_EQ(run_with_gathers({backward}, "{}").calls[0], "gather 2, gather 3, gather 3, gather 3, gather 3, scatter scaled 6, scatter scaled 6, scatter scaled 4");
  EXPECT_EQ(gathers({backward}, 0, R"({"units": [["w1", "w2"]]})"), "gather 2, gather 6, gather 6");
  EXPECT_EQ(gathers({backward}, 0, R"({"zero_dp_strategy": "optim"})"), "gather 2, gather 3, gather 3, gather 3, gather 3");
  EXPECT_EQ(gathers({backward}, 0, R"({"zero_dp_strategy": "no_shard"})"), "");
}

// A unit's end gives it up. The first of a model has no input to say so: it stays, until the next gather or, before 0.3, until the next but one.
TEST(megatron_fsdp_gathers, leave_out_a_first_unit_that_the_last_backward_kept) {
  const char *apart = R"({"sync_model_each_microbatch": false, "wrap": "layers"})", *together = R"({"wrap": "layers"})";
  EXPECT_EQ(gathers({backward}, 0, apart), "gather 2, gather 3, gather 3, gather 2, gather 3, gather 3");
  EXPECT_EQ(gathers({backward, backward}, 1, apart), "gather 3, gather 3, gather 2, gather 3, gather 3");
  EXPECT_EQ(gathers({backward, backward}, 1, apart, "0.2.3"), "gather 3, gather 3, gather 3, gather 3, gather 2");
  EXPECT_EQ(gathers({backward, finish, backward}, 2, apart), gathers({backward, backward}, 1, together));
}

// Shards of one rank, which ranks outside have half of each: a gather outside of the shard before that within, in the first micro-batch since gradients were synchronised.
TEST(megatron_fsdp_gathers, begin_outside_of_a_shard_where_that_is_sharded_too) {
  const std::string outer = R"({"units": [["w0", "w1", "w2"]], "mesh": ["copies", "shard"], "outer_dp_sharding_strategy": "optim")";
  const std::string each = outer + "}", apart = outer + R"(, "sync_model_each_microbatch": false})";
  EXPECT_EQ(gathers({backward}, 0, each.c_str()), "gather 8, gather 16, gather 8, gather 16");
  EXPECT_EQ(gathers({backward, backward, finish, backward}, 1, apart.c_str()), "");
  EXPECT_EQ(gathers({backward, backward, finish, backward}, 3, apart.c_str()), "gather 8, gather 16");
}

// By the size of a rank's half. From the last unit back the first one is left out: two others have 500 million elements already.
TEST(megatron_fsdp_gathers, go_ahead_by_500_million_elements) {
  struct Sizes final : TraceSink {
    void collective(const CollectiveRecord& c) override {
      if (c.rank == 0 && c.purpose == Purpose::parameter) halves.push_back(c.numel);
    }
    std::vector<std::uint64_t> halves;
  };
  json parameters = json::array();
  for (const std::uint64_t half : {150'000'001, 150'000'002, 150'000'003, 150'000'004}) parameters.push_back({{"name", "w" + std::to_string(half % 10)}, {"numel", 2 * half}});
  Sizes seen;
  testing::run_on_weights({{"name", "large"},
                           {"world_size", 2},
                           {"parameters", parameters},
                           {"engine", {{"framework", "megatron-fsdp"}, {"config", json::object()}, {"optimizer", {{"type", "SGD"}, {"lr", 1.0}}}}},
                           {"script", json::array({{{"backward", json::object()}}})}},
                          seen);
  const std::uint64_t n = 150'000'000;
  EXPECT_EQ(seen.halves, (std::vector<std::uint64_t>{n + 1, n + 2, n + 3, n + 4, n + 2, n + 3, n + 4, n + 1}));
}

TEST(megatron_fsdp_gathers, go_ahead_no_more_from_a_root_that_a_backward_marked) {
  EXPECT_EQ(gathers({backward, using_only({"w0"})}, 1), "gather 2");
  EXPECT_EQ(gathers({backward, using_only({"w0"})}, 1, "{}", "0.4.0"), "gather 2, gather 3, gather 3");
}

TEST(megatron_fsdp_backwards, are_reduced_unit_by_unit_from_the_last) {
  EXPECT_EQ(run({backward}, "{}").calls[0], "scatter scaled 6, scatter scaled 6, scatter scaled 4");
  EXPECT_EQ(run({backward}, R"({"zero_dp_strategy": "no_shard"})").calls[0], "all scaled 6, all scaled 5, all scaled 4");
}

TEST(megatron_fsdp_backwards, are_reduced_in_no_sync_where_gradients_are_sharded) {
  const char* sharded = R"({"sync_model_each_microbatch": false})";
  const char* whole = R"({"sync_model_each_microbatch": false, "zero_dp_strategy": "optim"})";
  EXPECT_EQ(run({no_sync({backward}), backward}, sharded).calls.size(), 2u);
  const ShardedRun seen = run({no_sync({backward}), backward}, whole);
  EXPECT_EQ(seen.calls.size(), 1u);
  EXPECT_TRUE(seen.calls.contains(3));
}

TEST(megatron_fsdp_backwards, wait_for_a_flag_that_only_no_sync_sets) {
  const char* whole = R"({"sync_model_each_microbatch": false, "zero_dp_strategy": "optim"})";
  EXPECT_TRUE(run({backward, finish, step}, whole).calls.empty());
  EXPECT_EQ(run({no_sync({}), backward}, whole).calls.size(), 1u);
}

TEST(megatron_fsdp_backwards, do_not_heed_no_sync_while_each_micro_batch_is_synchronised) {
  EXPECT_EQ(run({no_sync({backward}), backward}, R"({"zero_dp_strategy": "optim"})").calls.size(), 2u);
  EXPECT_EQ(run({call(auto_sync_event, R"({"value": false})"), backward, call(auto_sync_event), backward}, R"({"zero_dp_strategy": "optim"})").calls.size(), 1u);
}

TEST(megatron_fsdp_finish, reduces_again_without_overlap_as_releases_have_it) {
  const char* optim = R"({"zero_dp_strategy": "optim", "overlap_grad_reduce": false, "sync_model_each_microbatch": false})";
  const char* no_shard = R"({"zero_dp_strategy": "no_shard", "overlap_grad_reduce": false, "sync_model_each_microbatch": false})";
  const auto again = [&](const char* config, const char* release) { return run({no_sync({backward}), backward, finish}, config, release).calls.contains(4); };
  EXPECT_FALSE(again(optim, "0.2.3"));
  EXPECT_TRUE(again(optim, "0.3.0"));
  EXPECT_FALSE(again(no_shard, "0.4.0"));
  EXPECT_TRUE(again(no_shard, "0.5.0"));
}

TEST(megatron_fsdp_optim, scatters_since_0_3) {
  EXPECT_EQ(run({backward}, R"({"zero_dp_strategy": "optim"})", "0.2.3").calls[0], "all scaled 6, all scaled 6, all scaled 4");
  EXPECT_EQ(run({backward}, R"({"zero_dp_strategy": "optim"})", "0.3.0").calls[0], "scatter scaled 6, scatter scaled 6, scatter scaled 4");
}

TEST(megatron_fsdp_sums, are_not_scaled_for_a_loop_that_divides_by_tokens) {
  EXPECT_EQ(run({backward}, R"({"calculate_per_token_loss": true})").calls[0], "scatter 6, scatter 6, scatter 4");
}

TEST(megatron_fsdp_param_groups, are_replaced_by_one_before_0_2_2_where_the_optimizer_is_extended) {
  Scenario s = sharded_scenario({backward, step});
  s.engine.optimizer.learning_rate = 1;
  s.engine.param_groups = {{.parameters = {0}, .learning_rate = 0.25, .weight_decay = std::nullopt},
                           {.parameters = {1, 2}, .learning_rate = std::nullopt, .weight_decay = std::nullopt}};
  const auto rate = [&](const char* config_text, const char* release) {
    const MegatronFsdpConfig config = config_of(config_text);
    return megatron_fsdp::Setup{{.scenario = &s, .timeline = nullptr, .rank = 0}, &config, behaviour_of({release, {}}).value(), {}}.optimizer_of(0).learning_rate;
  };
  EXPECT_EQ(rate("{}", "0.1.0"), 1);
  EXPECT_EQ(rate("{}", "0.2.1"), 1);
  EXPECT_EQ(rate("{}", "0.2.2"), 0.25);
  EXPECT_EQ(rate("{}", "0.6.1"), 0.25);
  EXPECT_EQ(rate(R"({"fully_shard_optimizer": false})", "0.1.0"), 0.25);
}

TEST(megatron_fsdp_streams, are_ordered) {
  EXPECT_EQ(run({no_sync({backward}), backward, finish, step, item(ScriptKind::optimizer_zero_grad), backward, step}, R"({"sync_model_each_microbatch": false})").races, 0u);
}

std::string refused(const char* config_text, std::vector<ScriptItem> script = {backward}, const char* release = "0.6.1") {
  Scenario s = sharded_scenario(std::move(script));
  s.engine.as_of.base = release;
  const MegatronFsdpConfig config = config_of(config_text);
  if (const auto problem = megatron_fsdp_refusal(s, config)) return problem->where;
  const auto problem = not_judged(s);
  return problem ? "not judged: " + problem->where : "";
}

TEST(megatron_fsdp_admission, names_what_stands_in_the_way) {
  EXPECT_EQ(refused("{}"), "");
  EXPECT_EQ(refused(R"({"average_in_collective": true})"), "/engine/config/average_in_collective");
  EXPECT_EQ(refused(R"({"wrap": "root"})"), "/engine/config/units");
  EXPECT_EQ(refused(R"({"wrap": "root", "zero_dp_strategy": "optim"})"), "");
  EXPECT_EQ(refused(R"({"outer_dp_sharding_strategy": "optim"})"), "/engine/config/outer_dp_sharding_strategy");
  EXPECT_EQ(refused(R"({"overlap_grad_reduce": false})"), "/engine/config/overlap_grad_reduce");
  EXPECT_EQ(refused(R"({"mixed_precision": {"grad_comm_dtype": "bf16"}})", {backward}, "0.3.1"), "/engine/config/mixed_precision/grad_comm_dtype");
  EXPECT_EQ(refused(R"({"mixed_precision": {"main_params_dtype": null, "main_grads_dtype": "bf16"}})"), "/engine/config/mixed_precision/main_grads_dtype");
  EXPECT_EQ(refused("{}", {item(ScriptKind::forward)}), "/script/0");
  EXPECT_EQ(refused("{}", {no_sync({no_sync({backward})})}), "/script/0/no_sync/0");
  EXPECT_EQ(refused("{}", {no_sync({backward}), call(auto_sync_event)}), "not judged: /script");
}

TEST(megatron_fsdp_admission, takes_ranks_that_disagree) {
  ScriptItem of_one = call(auto_sync_event), finish_of_one = finish;
  of_one.ranks = finish_of_one.ranks = {0};
  EXPECT_EQ(refused(R"({"zero_dp_strategy": "optim"})", {of_one, backward}), "");
  EXPECT_EQ(refused(R"({"zero_dp_strategy": "no_shard"})", {of_one, backward}), "");
  EXPECT_EQ(refused("{}", {backward, of_one}), "");
  EXPECT_EQ(refused("{}", {backward, finish_of_one}), "");
}

TEST(megatron_fsdp_history, names_runs_of_releases_that_differ) {
  const History& known = *framework_named("megatron-fsdp")->history();
  EXPECT_EQ(known.points(), (std::vector<std::string>{"0.1.0", "0.2.2", "0.3.0", "0.4.0", "0.5.0"}));
  std::vector<std::string> rows;
  for (const History::ReleaseRow& row : known.release_rows()) rows.push_back(row.releases);
  EXPECT_EQ(rows, (std::vector<std::string>{"0.1.0 to 0.2.1", "0.2.2 to 0.2.3", "0.3.0 to 0.3.1", "0.4.0", "0.5.0 to 0.6.1"}));
  for (const auto& [release, value] : {std::pair("0.2.3", "no"), std::pair("0.3.0", "yes"), std::pair("0.4.0", "yes"), std::pair("0.5.0", "no"), std::pair("head", "no")})
    EXPECT_EQ(known.switch_value({release, {}}, "averages_in_collective"), value) << release;
  EXPECT_EQ(known.behaviour_of({"head", {}}), known.behaviour_of({"0.6.1", {}}));
  EXPECT_EQ(known.contains_all_of("0.5.1", "0.4.0"), true);
  EXPECT_EQ(known.contains_all_of("0.0.1", "0.4.0"), std::nullopt);
  for (const Repair& repair : known.repairs()) {
    EXPECT_TRUE(entry_named(repair.entry, "").ok()) << repair.entry;
    EXPECT_EQ(known.switch_value({"head", {{std::string(repair.name), std::string(repair.right)}}}, repair.name), std::string(repair.right)) << repair.entry;
  }
}

TEST(megatron_fsdp_admission, knows_releases_and_switches) {
  EXPECT_EQ(behaviour_of({"0.0.9", {}}).error().message, "is \"0.0.9\"; releases are modelled from 0.1.0 on");
  EXPECT_FALSE(behaviour_of({"0.2", {}}).ok());
  EXPECT_FALSE(behaviour_of({"head", {{"scales_buckets", "yes"}}}).ok());
  EXPECT_FALSE(behaviour_of({"head", {{"scales_the_bucket", "maybe"}}}).ok());
  EXPECT_FALSE(behaviour_of({"0.2.3", {}})->scales_the_bucket);
  EXPECT_TRUE(behaviour_of({"0.2.3", {{"scales_the_bucket", "yes"}}})->scales_the_bucket);
  EXPECT_EQ(behaviour_of({"0.6.1", {}}).value(), behaviour_of({"head", {}}).value());
}

TEST(megatron_fsdp_configuration, is_written_as_it_was_read) {
  for (const char* text : {R"({"zero_dp_strategy":"optim","sync_model_each_microbatch":false,"wrap":"root"})",
                           R"({"outer_dp_sharding_strategy":"optim","mixed_precision":{"main_params_dtype":null,"grad_comm_dtype":"bf16"},"units":[["w1"]],"mesh":["a","b"]})"})
    EXPECT_EQ(megatron_fsdp_config_from_json(json::parse(text), "").value().json_text(), text);
}

}  // namespace
}  // namespace gradledger::megatron_fsdp
