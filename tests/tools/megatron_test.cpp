// Scenarios of Megatron-Core through the command: judged, blamed by its own rules, refused where a verb does not know them.
#include <map>

#include "tests/support/loops.h"
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

constexpr const char* zero = R"({"zero_grad": "engine"})";
constexpr const char* finalize = R"({"event": {"name": "finalize_model_grads"}})";
constexpr const char* with_overlap = R"({"ddp": {"overlap_grad_reduce": true}})";

// Z, F: zero_grad_buffer, finalize_model_grads.
json megatron_loop(std::string script, const char* config = "{}") {
  const auto put = [&](const std::string& word, const std::string& event) {
    for (std::size_t at = script.find(word); at != std::string::npos; at = script.find(word, at + event.size())) script.replace(at, word.size(), event);
  };
  put("Z", zero);
  put("F", finalize);
  return loop_around("megatron", script, config);
}

std::map<std::string, json> breaking_megatron() {
  json summed = megatron_loop(R"([Z, {"backward": {}}, F, {"step": {}}])"), weighed = megatron_loop(R"([Z, {"backward": {"weight": "1/3"}}, F, {"step": {}}])");
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
      {"no-megatron-exception", megatron_loop(R"([Z, {"raise": {"caught": true}}, {"backward": {}}, F, {"step": {}}])")},
      {"weights-of-the-megatron-loop", weighed},
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
  for (const char* script : {R"([Z, {"backward": {}}, F, {"step": {}}, Z, {"backward": {}}, F, {"step": {}}])",
                             R"([Z, {"no_sync": [{"backward": {"micro_batches": 3}}]}, {"backward": {}}, F, {"step": {}}, Z])"})
    for (const char* config : {"{}", with_overlap}) EXPECT_EQ(broken_rules(megatron_loop(script, config)), std::vector<std::string>{}) << script;
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
  EXPECT_EQ(refused(tensor_parallel), "/groups/tp");
}

}  // namespace
}  // namespace gradledger::testing
