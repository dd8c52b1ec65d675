// Scenarios of Megatron-Core through the command: judged, blamed by its own rules, refused where a verb does not know them.
#include <map>

#include "tests/support/loops.h"
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

constexpr const char* zero = R"({"zero_grad": "engine"})";
constexpr const char* finalize = R"({"event": {"name": "finalize_model_grads"}})";
constexpr const char* schedule = R"({"event": {"name": "forward_backward_func"}})";
constexpr const char* with_overlap = R"({"ddp": {"overlap_grad_reduce": true}})";

// Z, S, F: zero_grad_buffer, the call of a schedule, finalize_model_grads.
json megatron_loop(std::string script, const char* config = "{}") {
  const auto put = [&](const std::string& word, const std::string& event) {
    for (std::size_t at = script.find(word); at != std::string::npos; at = script.find(word, at + event.size())) script.replace(at, word.size(), event);
  };
  put("Z", zero);
  put("F", finalize);
  put("S", schedule);
  return loop_around("megatron", script, config);
}

std::map<std::string, json> breaking_megatron() {
  json summed = megatron_loop(R"([Z, {"backward": {}}, F, {"step": {}}])"), weighed = megatron_loop(R"([Z, {"backward": {"weight": "1/3"}}, F, {"step": {}}])");
  json cut = megatron_loop(R"([Z, {"backward": {}}, F, {"step": {}}])");
  cut["layout"] = {{"tp", 2}};
  cut["parameters"][0] = {{"name", "w0"}, {"numel", 12}, {"sharded_over", "tp"}};
  json left = megatron_loop(R"([Z, {"backward": {}}, F, {"step": {}}, Z, {"backward": {}}, F, {"step": {}}])");
  left["model_dtype"] = "fp32";
  summed["contract"] = {{"average_over", "none"}};
  weighed["contract"] = {{"divide_by", "window"}};
  return {
      {"same-megatron-calls", megatron_loop(R"([Z, {"backward": {"ranks": [0]}}])")},
      {"finalize-before-step", megatron_loop(R"([Z, {"backward": {}}, {"step": {}}])")},
      {"one-finalize", megatron_loop(R"([Z, {"backward": {}}, F, F, {"step": {}}])")},
      {"zero-buffer-before-window", megatron_loop(R"([Z, {"backward": {}}, F, {"step": {}}, {"backward": {}}, F, {"step": {}}])")},
      {"zero-buffer-behind-step", megatron_loop(R"([Z, {"backward": {}}, Z, {"backward": {}}, F, {"step": {}}])")},
      {"overlap-synchronised-last", megatron_loop(R"([Z, {"backward": {}}, {"backward": {}}, F, {"step": {}}])", with_overlap)},
      {"parameters-of-the-first-window", megatron_loop(R"([Z, {"backward": {"uses": ["w0"]}}, F, {"step": {}}])", with_overlap)},
      {"step-of-a-window", megatron_loop(R"([Z, {"step": {}}])")},
      {"micro-batches-of-the-schedule", megatron_loop(R"([Z, {"backward": {}}, F, {"step": {}}])", R"({"schedule": {"num_microbatches": 2}})")},
      {"mean-over-data-parallel", summed},
      {"attributes-of-the-layout", cut},
      {"no-megatron-exception", megatron_loop(R"([Z, {"raise": {"caught": true}}, {"backward": {}}, F, {"step": {}}])")},
      {"weights-of-the-megatron-loop", weighed},
      {"megatron-checkpoint", megatron_loop(R"([Z, {"backward": {}}, {"save": {}}, {"restore": {}}, Z, {"backward": {}}, F, {"step": {}}])")},
      {"zero-grad-of-the-optimizer", left},
      {"backwards-of-the-schedule", megatron_loop(R"([Z, S, {"backward": {}}, F, {"step": {}}])", R"({"schedule": {"num_microbatches": 2}})")},
  };
}

TEST(documented_use_of_megatron, has_for_every_rule_a_script_that_breaks_it) {
  const auto scripts = breaking_megatron();
  for (const UseRule& rule : framework_named("megatron")->use_rules()) {
    ASSERT_TRUE(scripts.contains(std::string(rule.id))) << rule.id;
    const std::vector<std::string> ids = broken_rules(scripts.at(std::string(rule.id)));
    ASSERT_FALSE(ids.empty()) << rule.id;
    EXPECT_EQ(ids.front(), rule.id);
  }
  EXPECT_EQ(scripts.size(), framework_named("megatron")->use_rules().size());
}

TEST(documented_use_of_megatron, is_broken_by_no_documented_loop) {
  for (const char* script : {R"([Z, {"zero_grad": "optimizer"}, {"backward": {}}, F, {"step": {}}, Z, {"zero_grad": "optimizer"}, {"backward": {}}, F, {"step": {}}])",
                             R"([Z, {"no_sync": [{"backward": {"micro_batches": 3}}]}, {"backward": {}}, F, {"step": {}}, Z])"})
    for (const char* config : {"{}", with_overlap}) EXPECT_EQ(broken_rules(megatron_loop(script, config)), std::vector<std::string>{}) << script;
  json narrow = megatron_loop(R"([Z, {"backward": {}}, F, {"step": {}}, Z, {"backward": {}}, F, {"step": {}}])");
  narrow["model_dtype"] = "bf16";
  EXPECT_EQ(broken_rules(narrow), std::vector<std::string>{}) << "the optimizer has fp32 copies";
}

// Two stages of two ranks, two chunks on each.
json interleaved(const char* script, const char* schedule_options = "{}") {
  json out = megatron_loop(script, R"({"ddp": {"overlap_grad_reduce": true}, "schedule": {"num_microbatches": 2, "model_chunks": [["a0", "a1"], ["b0", "b1"]]}})");
  out["world_size"] = 4;
  out["engine"]["pipeline_stages"] = 2;
  out["parameters"] = json::parse(R"([{"name": "a0", "numel": 4}, {"name": "b0", "numel": 4}, {"name": "a1", "numel": 4, "pipeline_stage": 1},
                                      {"name": "b1", "numel": 4, "pipeline_stage": 1}])");
  out["engine"]["config"]["schedule"].update(json::parse(schedule_options));
  return out;
}

TEST(documented_use_of_megatron, is_broken_by_backwards_of_another_chunk_than_the_schedules) {
  constexpr const char* right = R"([Z, S, {"backward": {"micro_batches": 2, "uses": ["b0", "b1"]}}, {"backward": {"micro_batches": 2, "uses": ["a0", "a1"]}}, F, {"step": {}}])";
  constexpr const char* wrong = R"([Z, S, {"backward": {"micro_batches": 2, "uses": ["a0", "a1"]}}, {"backward": {"micro_batches": 2, "uses": ["b0", "b1"]}}, F, {"step": {}}])";
  EXPECT_EQ(broken_rules(interleaved(right)), std::vector<std::string>{});
  EXPECT_EQ(broken_rules(interleaved(right, R"({"grad_sync_func": true})")), std::vector<std::string>{});
  EXPECT_EQ(broken_rules(interleaved(wrong)).front(), "backwards-of-the-schedule");
}

TEST(megatron, refuses_schedules_that_megatron_refuses_or_that_are_not_modelled) {
  const auto refused = [](const json& document) {
    const auto scenario = read_scenario(document.dump(), ".");
    if (!scenario) return scenario.error().where;
    const auto selected = select_engine(*scenario);
    return selected ? std::string("nothing") : selected.error().where;
  };
  constexpr const char* script = R"([Z, S, {"backward": {"micro_batches": 4}}, F])";
  const std::string at = "/engine/config/schedule/";
  EXPECT_EQ(refused(interleaved(script)), "nothing");
  EXPECT_EQ(refused(interleaved(script, R"({"microbatch_group_size_per_vp_stage": 3})")), at + "microbatch_group_size_per_vp_stage");
  EXPECT_EQ(refused(interleaved(script, R"({"num_microbatches": 4, "microbatch_group_size_per_vp_stage": 3})")), at + "microbatch_group_size_per_vp_stage");
  EXPECT_EQ(refused(interleaved(script, R"({"num_microbatches": 5, "microbatch_group_size_per_vp_stage": 3})")), "nothing");
  EXPECT_EQ(refused(interleaved(script, R"({"model_chunks": [["a0", "a1"], ["b0"]]})")), at + "model_chunks");
  EXPECT_EQ(refused(interleaved(script, R"({"model_chunks": [["a0", "a1"], ["b0", "b1", "a0"]]})")), at + "model_chunks/1");
  EXPECT_EQ(refused(interleaved(script, R"({"model_chunks": [["a0", "a1"], ["b0", "b1", "x"]]})")), at + "model_chunks/1");
  EXPECT_EQ(refused(interleaved(script, R"({"loss": "sum_and_tokens"})")), at + "model_chunks");
  EXPECT_EQ(refused(interleaved(R"([Z, {"no_sync": [S, {"backward": {"micro_batches": 4}}]}, F])")), "/script/1/no_sync/0/event");
  EXPECT_EQ(refused(interleaved(R"([Z, {"event": {"name": "forward_backward_func", "ranks": [0]}}, F])")), "/script/1/event/ranks");
  json early = interleaved(script, R"({"num_microbatches": 3})");
  early["engine"]["as_of"] = "0.9.0";
  EXPECT_EQ(refused(early), at + "num_microbatches");
  json apart = interleaved(script, R"({"grad_sync_func": true})");
  apart["engine"]["config"].erase("ddp");
  EXPECT_EQ(refused(apart), at + "grad_sync_func");
  EXPECT_EQ(refused(megatron_loop(R"([Z, S, {"backward": {}}, F])")), "/script/1/event");
  EXPECT_EQ(refused(megatron_loop(R"([Z, {"backward": {}}, F])", R"({"schedule": {"num_microbatches": 2, "microbatch_group_size_per_vp_stage": 2}})")),
            at + "microbatch_group_size_per_vp_stage");
}

TEST(megatron, refuses_what_is_another_frameworks_with_its_place) {
  const auto refused = [](const json& document) {
    const auto scenario = read_scenario(document.dump(), ".");
    if (!scenario) return scenario.error().where;
    const auto selected = select_engine(*scenario);
    return selected ? std::string("nothing") : selected.error().where;
  };
  EXPECT_EQ(refused(megatron_loop(R"([Z, {"backward": {}}, {"finalize": {}}])")), "/script/2");
  EXPECT_EQ(refused(megatron_loop(R"([Z, {"backward": {"direct": true}}])")), "/script/1/backward");
  EXPECT_EQ(refused(megatron_loop(R"([Z, {"backward": {}}])", R"({"ddp": {"average_in_collective": true}, "model": {"calculate_per_token_loss": true}})")),
            "/engine/config/ddp/average_in_collective");
  EXPECT_EQ(refused(megatron_loop(R"([Z, {"backward": {}}])", R"({"parameters": {"x": ["shared"]}})")), "/engine/config/parameters/x");
  json early = megatron_loop(R"([Z, {"backward": {}}])", R"({"ddp": {"use_distributed_optimizer": true, "pad_buckets_for_high_nccl_busbw": true}})");
  early["engine"]["as_of"] = "0.11.0";
  EXPECT_EQ(refused(early), "/engine/config/ddp/pad_buckets_for_high_nccl_busbw");
  json tensor_parallel = megatron_loop(R"([Z, {"backward": {}}])");
  tensor_parallel["groups"] = {{"tp", {{0, 1}}}};
  EXPECT_EQ(refused(tensor_parallel), "nothing");
  tensor_parallel["groups"]["cp"] = {{0}, {1}};
  tensor_parallel["parameters"][0]["summed_over"] = "cp";
  EXPECT_EQ(refused(tensor_parallel), "/parameters/0/summed_over");
}

}  // namespace
}  // namespace gradledger::testing
