// Scenarios of DistributedDataParallel through the command: judged, blamed by its own rules, refused where a verb does not know them.
#include <map>
#include <set>

#include "tests/support/loops.h"
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

json loop(const char* script, const char* config = "{}") { return loop_around("ddp", script, config); }

std::map<std::string, json> breaking() {
  json divided = loop(R"([{"backward": {}}, {"step": {}}])"), summed = divided, weighed = loop(R"([{"backward": {"weight": "1/3"}}, {"step": {}}])"), left_out = divided;
  divided["contract"] = {{"divide_by", 2}};
  summed["contract"] = {{"average_over", "none"}};
  weighed["contract"] = {{"divide_by", "window"}};
  left_out["parameters"][1]["used_by"] = "step > 5";
  json changing = loop(R"([{"backward": {}}, {"step": {}}, {"zero_grad": "optimizer"}, {"backward": {}}, {"step": {}}])", R"({"static_graph": true})");
  changing["parameters"][1]["used_by"] = "step < 1";
  json scaled = loop(R"([{"backward": {}}, {"scale_gradients": {"by": 0.5}}, {"step": {}}])");
  scaled["contract"] = {{"divide_by", 2}};
  json in_fp16 = loop(R"([{"backward": {}}, {"step": {}}])", R"({"grad_scaler": {}})");
  in_fp16["model_dtype"] = "fp16";
  json by_hand = loop(R"([{"backward": {}}, {"step": {}}])", R"({"plain": ["w0"]})");
  by_hand["layout"] = {{"tp", 2}};
  by_hand["parameters"][0]["summed_over"] = "tp";
  json router = loop(R"([{"backward": {}}, {"step": {}}])", R"({"find_unused_parameters": true})");
  router["parameters"][1]["hooked_outputs"] = 0;
  return {
      {"same-calls", loop(R"([{"backward": {"ranks": [0]}}])")},
      {"forward-in-no-sync", loop(R"([{"forward": {}}, {"no_sync": [{"backward": {"of": 0}}]}, {"step": {}}])")},
      {"last-backward-synchronised", loop(R"([{"no_sync": [{"backward": {}}]}, {"step": {}}])")},
      {"finalized-once-a-backward", loop(R"([{"event": {"name": "require_manual_backward_finalization", "value": true}}, {"backward": {}}, {"step": {}}])")},
      {"one-backward-a-forward", loop(R"([{"forward": {}}, {"backward": {"of": 0}}, {"backward": {"of": 0}}, {"step": {}}])")},
      {"unused-parameters", left_out},
      {"static-graph", changing},
      {"no-exception", loop(R"([{"raise": {"caught": true}}, {"backward": {}}, {"step": {}}])")},
      {"reducing-hook", loop(R"([{"backward": {}}, {"step": {}}])", R"({"comm_hook": "noop"})")},
      {"loss-division", divided},
      {"mean-over-ranks", summed},
      {"zero-grad-between-windows", loop(R"([{"backward": {}}, {"zero_grad": "optimizer"}, {"step": {}}])")},
      {"zero-grad-before-backward", loop(R"([{"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {}}])")},
      {"backward-before-step", loop(R"([{"step": {}}])")},
      {"scaler-of-fp32", in_fp16},
      {"parts-of-gradients", by_hand},
      {"loss-from-outputs", router},
      {"weights-of-the-loop", weighed},
      {"reduced-gradients-kept", scaled},
      {"checkpoint-behind-step", loop(R"([{"backward": {}}, {"save": {}}, {"restore": {}}, {"backward": {}}, {"step": {}}])")},
  };
}

TEST(documented_use_of_ddp, has_for_every_rule_a_script_that_breaks_it) {
  const auto scripts = breaking();
  for (const UseRule& rule : framework_named("ddp")->use_rules()) {
    ASSERT_TRUE(scripts.contains(std::string(rule.id))) << rule.id;
    const std::vector<std::string> ids = broken_rules(scripts.at(std::string(rule.id)));
    ASSERT_FALSE(ids.empty()) << rule.id;
    EXPECT_EQ(ids.front(), rule.id);
  }
  EXPECT_EQ(scripts.size(), framework_named("ddp")->use_rules().size());
}

TEST(documented_use_of_ddp, is_broken_by_no_documented_loop) {
  for (const char* script : {R"([{"backward": {}}, {"step": {}}, {"zero_grad": "optimizer"}, {"backward": {}}, {"step": {}}])",
                             R"([{"no_sync": [{"backward": {}}, {"backward": {}}]}, {"backward": {}}, {"step": {}}, {"zero_grad": "optimizer"}])",
                             R"([{"forward": {}}, {"backward": {"of": 0}}, {"forward": {}}, {"backward": {"of": 1}}, {"step": {}}])"})
    EXPECT_EQ(broken_rules(loop(script)), std::vector<std::string>{}) << script;
}

TEST(a_loop_around_ddp, that_loses_its_reduction_is_told_which_rule_it_broke) {
  for (const auto& [name, rule] : {std::pair{"synchronised-before-the-last", "last-backward-synchronised"},
                                   {"backward-behind-the-block", "forward-in-no-sync"},
                                   {"two-forwards-before-two-backwards", "one-backward-a-forward"},
                                   {"unused-parameter-not-looked-for", "unused-parameters"}}) {
    const Outcome outcome = run({"replay", "--json", std::string(GRADLEDGER_SOURCE_DIR) + "/scenarios/ddp/" + name + ".json"});
    EXPECT_EQ(outcome.code, tool::findings) << name;
    const json report = testing::record_of(outcome);
    for (const json& finding : report["findings"]) {
      EXPECT_EQ(finding["blame"]["whose"], "usage") << name;
      EXPECT_EQ(finding["blame"]["rule"], rule) << name;
    }
  }
}

// Weights without fp32 masters round at every step, by more than one rounding at the end explains.
TEST(a_loop_around_ddp, is_clean_in_every_dtype_over_several_steps_where_it_keeps_to_what_is_documented) {
  const TemporaryFolder folder;
  for (const char* dtype : {"fp32", "bf16", "fp16"})
    for (const char* config : {"{}", R"({"gradient_as_bucket_view": true, "bucket_cap_mb": 0.00003})", R"({"static_graph": true})", R"({"comm_hook": "allreduce"})",
                               R"({"comm_hook": "bf16_compress"})", R"({"comm_hook": "fp16_wrapper"})"}) {
      // Each of the backwards that are reduced sends all of the window's gradient so far, and rounds it to the wire again.
      json document = loop(R"([{"backward": {}}, {"step": {}}, {"zero_grad": "optimizer"},
                               {"repeat": {"times": 4, "of": [{"no_sync": [{"backward": {}}]}, {"backward": {"micro_batches": 4}}, {"step": {}}, {"zero_grad": "optimizer"}]}}])",
                           config);
      document["model_dtype"] = dtype;
      document["world_size"] = 3;
      const Outcome outcome = run({"replay", "--summary", folder.write("a.json", document.dump())});
      EXPECT_EQ(outcome.code, tool::clean) << dtype << config << outcome.out << outcome.err;
    }
}

json report_of(const char* name, std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"replay", "--json", std::string(GRADLEDGER_SOURCE_DIR) + "/scenarios/ddp/" + name + ".json"});
  return testing::record_of(run(options));
}

TEST(a_loop_with_power_sgd, is_judged_like_any_average_before_the_hook_starts) {
  const json report = report_of("powersgd-before-its-start");
  EXPECT_EQ(report["findings"], json::array());
  EXPECT_EQ(report["inconclusive_rows"], 0);
  EXPECT_EQ(report["statistics"]["values"]["inconclusive"], 0);
}

TEST(a_loop_with_power_sgd, has_approximated_rows_in_its_ledger_and_no_finding_where_every_contribution_takes_part) {
  const json report = report_of("powersgd-approximates");
  EXPECT_EQ(report["findings"], json::array());
  EXPECT_GT(report["inconclusive_because"]["approximated"], 0);
  EXPECT_EQ(report["inconclusive_because"]["approximated"], report["inconclusive_rows"]);
  EXPECT_GT(report["statistics"]["values"]["inconclusive"], 0);
}

TEST(a_loop_with_power_sgd, is_inconclusive_in_numbers_where_the_symbolic_run_tells_who_takes_part) {
  EXPECT_EQ(report_of("powersgd-approximates", {"--executor", "numeric"})["findings"], json::array());
  EXPECT_EQ(report_of("powersgd-last-in-no-sync", {"--executor", "symbolic"})["findings"][0]["class"], "missing-reduction");
}

TEST(a_loop_with_power_sgd, has_a_finding_in_the_windows_behind_an_overflow_alone) {
  const json report = report_of("powersgd-keeps-an-overflow");
  std::set<int> steps;
  for (const json& finding : report["findings"]) {
    EXPECT_EQ(finding["class"], "wrong-skip");
    steps.insert(finding["step"].get<int>());
  }
  EXPECT_EQ(steps, (std::set<int>{4, 5}));
}

TEST(a_loop_around_ddp, whose_hook_adds_up_is_right_where_the_sum_is_meant) {
  json document = loop(R"([{"backward": {}}, {"step": {}}])", R"({"comm_hook": "sum"})");
  document["contract"] = {{"average_over", "none"}};
  EXPECT_EQ(broken_rules(document), std::vector<std::string>{});
  document.erase("contract");
  EXPECT_EQ(broken_rules(document), std::vector<std::string>{"reducing-hook"});
}

TEST(a_loop_around_ddp, weighs_what_its_data_parallel_ranks_average_and_no_others) {
  json document = loop(R"([{"backward": {"weight": "1/micro_batches_of_rank"}}, {"backward": {"weight": "1/micro_batches_of_rank"}}, {"step": {}}])");
  document["world_size"] = 4;
  document["layout"] = {{"tp", 2}};
  document["contract"] = {{"divide_by", "window"}};
  EXPECT_EQ(broken_rules(document), std::vector<std::string>{}) << "what the other tensor-parallel rank computes meets in no gradient of this one";
  document["contract"] = {{"divide_by", 1}};
  EXPECT_EQ(broken_rules(document), std::vector<std::string>{"weights-of-the-loop"});
}

TEST(a_loop_around_ddp, is_refused_where_it_says_what_ddp_does_not_have) {
  const TemporaryFolder folder;
  const auto error_of = [&](json document, const std::string& pointer, const json& value) {
    document[json::json_pointer(pointer)] = value;
    const Outcome outcome = run({"replay", folder.write("a.json", document.dump())});
    EXPECT_EQ(outcome.code, tool::bad_input) << pointer;
    return outcome.err;
  };
  const json good = loop(R"([{"backward": {}}, {"step": {}}])");
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(
      has(error_of(good, "/engine/config/zero_optimization", json::object()), "/engine/config/zero_optimization: is not a key that is known here; expected one of PowerSGDState"));
  EXPECT_TRUE(has(error_of(good, "/engine/config", json::array({1})), "/engine/config: is an array of 1 entries; expected an object"));
  EXPECT_TRUE(has(error_of(good, "/engine/as_of", "0.18.9"), "/engine/as_of: is \"0.18.9\"; of PyTorch 2.4.0 to 2.15.0 are modelled"));
  EXPECT_TRUE(has(error_of(good, "/engine/framework", "fsdp"), "/engine/framework: is \"fsdp\"; expected one of \"deepspeed\", \"ddp\""));
  EXPECT_TRUE(has(error_of(good, "/script/0", {{"set_boundary", true}}), "/script/0: is an engine's notion"));
  EXPECT_TRUE(has(error_of(good, "/engine/config/optimizer_in_backward", true), "is not called where the optimizer runs inside backwards"));
  EXPECT_TRUE(has(error_of(good, "/script/0", json::parse(R"({"no_sync": [{"set_boundary": true}]})")), "/script/0/no_sync/0: is an engine's notion"));
  EXPECT_TRUE(has(error_of(good, "/engine/config/bucket_cap_mb", -1), "/engine/config/bucket_cap_mb: is -1; expected a number above 0, up to 1000000"));
}

TEST(a_loop_around_ddp, is_explored_and_has_no_stage_in_a_table) {
  const std::string file = std::string(GRADLEDGER_SOURCE_DIR) + "/scenarios/ddp/each-forward-with-its-backward.json";
  const Outcome explored = run({"explore", file, "--length", "2"});
  EXPECT_EQ(explored.code, tool::clean) << explored.err;
  EXPECT_NE(explored.out.find("complete up to 2 events"), std::string::npos) << explored.out;
  const Outcome table = run({"replay", "--accounting", "--summary", file});
  EXPECT_EQ(table.code, tool::clean) << table.err;
  EXPECT_NE(table.out.find("\n-  "), std::string::npos) << table.out;
}

TEST(a_framework_without_an_engine, is_refused_by_searches_that_are_given_no_producer) {
  const Outcome explored = run({"explore", std::string(GRADLEDGER_SOURCE_DIR) + "/examples/cpp/averaging.json", "--length", "2"});
  EXPECT_EQ(explored.code, tool::unavailable);
  EXPECT_NE(explored.err.find("/engine/framework: is \"external\", of which there is no engine here; expected --producer with a driver that runs it"), std::string::npos)
      << explored.err;
}

}  // namespace
}  // namespace gradledger::testing
