// The rules of the second version of Megatron-FSDP one by one; that their sum is the package is what the recorded runs show.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/frameworks/framework.h"
#include "sim/frameworks/history.h"
#include "sim/frameworks/megatron_fsdp/v2/admission.h"
#include "sim/frameworks/megatron_fsdp/v2/config_json.h"
#include "sim/frameworks/megatron_fsdp/v2/contract.h"
#include "sim/frameworks/megatron_fsdp/v2/fsdp_module.h"
#include "tests/engine/sharded_run.h"

namespace gradledger::megatron_fsdp::v2 {
namespace {

using nlohmann::json;
using testing::sharded_scenario;
using testing::ShardedRun;

ScriptItem item(ScriptKind kind) {
  ScriptItem out;
  out.kind = kind;
  return out;
}

ScriptItem no_sync(std::vector<ScriptItem> items) {
  ScriptItem out = item(ScriptKind::no_sync);
  out.items = std::move(items);
  return out;
}

ScriptItem using_only(std::vector<std::string> parameters) {
  ScriptItem out = item(ScriptKind::backward);
  out.uses = std::move(parameters);
  return out;
}

const ScriptItem backward = item(ScriptKind::backward), step = item(ScriptKind::step), zero_grad = item(ScriptKind::optimizer_zero_grad);

// w0 is the root's; w1 and w2 are one module's, or one each.
constexpr const char *together = R"({"units": [["w1", "w2"]]})", *apart = R"({"units": [["w1"], ["w2"]]})", *copied = R"({"units": [["w1"], ["w2"]], "mesh": ["copies", "shard"]})";

Scenario scenario_of(std::vector<ScriptItem> script, const std::map<std::string, std::string>& switches) {
  Scenario s = sharded_scenario(std::move(script));
  s.engine.as_of = {"0.6.1", switches};
  s.groups = {{"copies", {{0, 1}}}, {"shard", {{0}, {1}}}};
  return s;
}

ShardedRun run(std::vector<ScriptItem> script, const char* config_text, const std::map<std::string, std::string>& switches = {}) {
  const Scenario s = scenario_of(std::move(script), switches);
  const V2Config config = v2_config_from_json(json::parse(config_text), "").value();
  EXPECT_FALSE(v2_refusal(s, config));
  return testing::sharded_run(
      s, v2_contract(s, config), [&](const EngineContext& context) { return std::make_unique<FsdpModules>(context, config, behaviour_of(s.engine.as_of).value()); },
      [](const CollectiveCall& c) { return c.kind == CollectiveKind::reduce_scatter ? "scatter"
                                           : c.kind == CollectiveKind::all_gather   ? "gather"
                                                                                    : "all"; });
}

// Behind the gathers of weights, which come first in an event.
std::string reductions(const std::string& calls) {
  const std::size_t last = calls.rfind("gather"), end = last == std::string::npos ? 0 : calls.find(", ", last);
  return end == 0 ? calls : end == std::string::npos ? "" : calls.substr(end + 2);
}

// The root gathers w0's, and each module the next one ahead: forwards from the root on, backwards from the last.
TEST(megatron_fsdp_v2_gathers, go_ahead_by_one_module) {
  EXPECT_EQ(run({backward}, together).calls[0], "gather 2, gather 6, gather 2, gather 6, scatter 12, scatter 4");
  EXPECT_EQ(run({backward}, apart).calls[0], "gather 2, gather 3, gather 3, gather 2, gather 3, gather 3, scatter 6, scatter 6, scatter 4");
}

// What was gathered ahead and not used is there still in the next forward.
TEST(megatron_fsdp_v2_gathers, are_not_repeated_of_a_module_that_nobody_called) {
  EXPECT_EQ(run({using_only({"w0"}), using_only({"w0"})}, together).calls[1], "gather 2, gather 2, scatter 4");
}

TEST(megatron_fsdp_v2_backwards, reduce_module_by_module_from_the_last) {
  EXPECT_EQ(reductions(run({backward}, apart).calls[0]), "scatter 6, scatter 6, scatter 4");
  EXPECT_EQ(reductions(run({backward}, together).calls[0]), "scatter 12, scatter 4");
  EXPECT_EQ(run({no_sync({backward})}, apart).calls.size(), 1u);
}

TEST(megatron_fsdp_v2_backwards, leave_a_module_that_lacks_a_gradient_unreduced) {
  const ShardedRun seen = run({using_only({"w0", "w1"}), backward}, together);
  EXPECT_EQ(reductions(seen.calls.at(0)), "scatter 4");
  EXPECT_EQ(reductions(seen.calls.at(1)), "scatter 12, scatter 4");
  EXPECT_EQ(reductions(run({using_only({"w0", "w1"})}, together, {{"reduces_unfinished", "yes"}}).calls[0]), "scatter 4, scatter 12");  // at the end
}

TEST(megatron_fsdp_v2_backwards, raise_behind_an_unfinished_one_where_modules_have_phases) {
  EXPECT_TRUE(run({using_only({"w0", "w1"}), backward}, together).errors.empty());
  EXPECT_EQ(run({using_only({"w0", "w1"}), backward}, together, {{"raises_unfinished", "yes"}}).errors[1],
            "RuntimeError: Invalid FSDP module phase transition: Phase.BACKWARD -> Phase.BACKWARD.");
}

TEST(megatron_fsdp_v2_copies, are_averaged_by_the_last_backward_or_by_the_step) {
  const ShardedRun last = run({no_sync({backward}), backward, step}, copied), never = run({no_sync({backward}), step}, copied);
  EXPECT_EQ(reductions(last.calls.at(1)), "scatter 6, scatter 6, scatter 4");
  EXPECT_EQ(reductions(last.calls.at(3)), "scatter 6, all 6, scatter 6, all 6, scatter 4, all 4");
  EXPECT_FALSE(last.calls.contains(4));
  EXPECT_EQ(reductions(never.calls.at(3)), "all 4, all 5, all 6");  // parameter by parameter, without what lies behind them
}

TEST(megatron_fsdp_v2_streams, are_ordered) {
  EXPECT_EQ(run({backward, backward, step, zero_grad, backward, step}, apart).races, 0u);
  EXPECT_EQ(run({no_sync({backward}), backward, step, zero_grad, no_sync({backward}), step}, copied).races, 0u);
}

std::string refused(std::vector<ScriptItem> script, const char* config_text = "{}", const std::string& release = "0.6.1") {
  Scenario s = scenario_of(std::move(script), {});
  s.engine.as_of.base = release;
  const auto config = v2_config_from_json(json::parse(config_text), "/engine/config");
  if (!config) return config.error().where;
  const auto problem = v2_refusal(s, *config);
  return problem ? problem->where : "";
}

TEST(megatron_fsdp_v2_admission, names_what_stands_in_the_way) {
  EXPECT_EQ(refused({backward}), "");
  EXPECT_EQ(refused({backward}, R"({"mixed_precision": {"main_params_dtype": null}})"), "/engine/config/mixed_precision/main_params_dtype");
  EXPECT_EQ(refused({backward}, R"({"zero_dp_strategy": "optim"})"), "/engine/config/zero_dp_strategy");
  EXPECT_EQ(refused({backward}, R"({"units": [["w1"]], "wrap": "root"})"), "/engine/config/units");
  EXPECT_EQ(refused({backward}, R"({"mesh": ["copies", "nobody"]})"), "/engine/config/mesh/1");
  EXPECT_EQ(refused({item(ScriptKind::forward)}), "/script/0");
  EXPECT_EQ(refused({backward, item(ScriptKind::save)}), "/script/1");
  EXPECT_EQ(refused({no_sync({no_sync({backward})})}), "/script/0/no_sync/0");
  EXPECT_EQ(refused({backward}, "{}", "0.5.1"), "/engine/as_of");
}

TEST(megatron_fsdp_v2_history, has_one_state_and_repairs_for_each_known_defect) {
  const History& known = *framework_named("megatron-fsdp-v2")->history();
  EXPECT_EQ(known.points(), (std::vector<std::string>{"0.6.0"}));
  EXPECT_EQ(known.behaviour_of({"head", {}}), known.behaviour_of({"0.6.0", {}}));
  for (const Repair& repair : known.repairs()) {
    EXPECT_TRUE(entry_named(repair.entry, "").ok()) << repair.entry;
    EXPECT_EQ(known.switch_value({"head", {{std::string(repair.name), std::string(repair.right)}}}, repair.name), std::string(repair.right)) << repair.entry;
  }
}

TEST(megatron_fsdp_v2_configuration, is_written_as_it_was_read) {
  for (const char* text : {R"({"mixed_precision":{"main_grads_dtype":"fp32"},"wrap":"root"})", R"({"units":[["w1"]],"mesh":["a","b"],"calls_unused_units":true})"})
    EXPECT_EQ(v2_config_from_json(json::parse(text), "").value().json_text(), text);
}

}  // namespace
}  // namespace gradledger::megatron_fsdp::v2
