// Every loop's expansion into events, by release where packages changed theirs.
#include <map>

#include "loops/loops.h"
#include "tests/audit/support.h"

namespace gradledger::testing {
namespace {

using loops::LoopSetting;

std::string script_of(const std::string& loop, LoopSetting setting) {
  const loops::Loop* found = loops::named(loop);
  EXPECT_TRUE(found) << loop;
  if (!found) return "";
  for (const loops::LoopPackage& package : found->packages) setting.packages.try_emplace(std::string(package.name), package.newest);
  return found->expand(setting).script[0]["repeat"]["of"].dump();
}

LoopSetting on(const std::string& framework, std::uint32_t stage = 2) {
  LoopSetting out;
  out.framework = framework;
  out.micro_batches = 4;
  if (framework == "deepspeed") out.stage = stage;
  return out;
}

TEST(a_loop, on_deepspeed_has_the_calls_of_its_documentation) {
  const std::map<std::string, std::string> scripts{
      {"deepspeed", R"([{"repeat":{"of":[{"backward":{}},{"step":{}}],"times":4}}])"},
      {"manual", R"([{"set_boundary":false},{"backward":{"micro_batches":3}},{"set_boundary":true},{"backward":{}},{"step":{}}])"},
      {"no-boundary", R"([{"backward":{"micro_batches":4}},{"step":{}}])"},
      {"no-sync", R"([{"no_sync":[{"backward":{"micro_batches":3}}]},{"backward":{}},{"step":{}}])"},
      {"coalesce", R"([{"coalesce":[{"backward":{"micro_batches":4}}]},{"step":{}}])"},
      {"verl", R"([{"backward":{"micro_batches":4,"weight":"world*tokens/tokens_of_window"}},{"step":{}}])"},
      {"lightning", R"([{"repeat":{"of":[{"backward":{"weight":"1/4"}},{"step":{}}],"times":3}},{"backward":{"weight":"1/4"}},{"step":{}}])"},
  };
  for (const auto& [loop, script] : scripts) EXPECT_EQ(script_of(loop, on("deepspeed")), script) << loop;
}

TEST(a_loop, on_distributed_data_parallel_has_the_calls_of_its_documentation) {
  const std::map<std::string, std::string> scripts{
      {"manual", R"([{"backward":{"micro_batches":3}},{"backward":{}},{"step":{}},{"zero_grad":"engine"}])"},
      {"no-sync", R"([{"no_sync":[{"backward":{"micro_batches":3}}]},{"backward":{}},{"step":{}},{"zero_grad":"engine"}])"},
      {"accelerate", R"([{"no_sync":[{"backward":{"micro_batches":3,"weight":"1/4"}}]},{"backward":{"weight":"1/4"}},{"step":{}},{"zero_grad":"engine"}])"},
      {"lightning", R"([{"zero_grad":"engine"},{"no_sync":[{"backward":{"micro_batches":3,"weight":"1/4"}}]},{"backward":{"weight":"1/4"}},{"step":{}}])"},
      {"lightning-manual", R"([{"backward":{"micro_batches":3,"weight":"1/4"}},{"backward":{"weight":"1/4"}},{"step":{}},{"zero_grad":"engine"}])"},
  };
  for (const auto& [loop, script] : scripts) EXPECT_EQ(script_of(loop, on("ddp")), script) << loop;
}

// drivers/python/tests/test_audit_loops.py has what real ones call: each micro-batch enters a no_sync() of its own.
TEST(a_loop, of_a_package_on_fsdp1_has_the_calls_of_real_runs) {
  const std::string behind = R"({"step":{}},{"zero_grad":"engine"}])", tokens = R"("weight":"world*tokens/tokens_of_window")", quarter = R"("weight":"1/4")";
  for (const auto& [loop, weight] : std::map<std::string, std::string>{{"accelerate", quarter}, {"hf-trainer", tokens}}) {
    LoopSetting setting = on("fsdp1");
    const std::string held = R"({"backward":{"micro_batches":3,)" + weight + "}}", last = R"({"backward":{)" + weight + "}},";
    EXPECT_EQ(script_of(loop, setting), R"([{"no_sync":[)" + held + "]}," + last + behind) << loop;
    setting.sync_each_batch = true;
    EXPECT_EQ(script_of(loop, setting), "[" + held + "," + last + behind) << loop;
  }
}

TEST(a_loop, on_megatron_has_the_calls_of_its_training_step) {
  const std::string begin = R"([{"zero_grad":"engine"},{"zero_grad":"optimizer"},)", finalize = R"({"event":{"name":"finalize_model_grads"}})", end = R"(,{"step":{}}])";
  const std::string held = R"({"no_sync":[{"backward":{"micro_batches":3}}]},{"backward":{}},)";
  const std::map<std::string, std::string> scripts{
      {"megatron", begin + held + finalize + end},
      {"no-sync", begin + held + finalize + end},
      {"manual", begin + R"({"backward":{"micro_batches":4}},)" + finalize + end},
      {"no-boundary", begin + R"({"backward":{"micro_batches":4}})" + end},
      {"schedule-each", begin + R"({"repeat":{"of":[{"backward":{}},)" + finalize + R"(],"times":4}})" + end},
  };
  for (const auto& [loop, script] : scripts) EXPECT_EQ(script_of(loop, on("megatron")), script) << loop;
  EXPECT_EQ(loops::named("megatron")->expand(on("megatron")).config, (json{{"schedule", {{"num_microbatches", 4}, {"loss", "mean"}}}}));
}

TEST(a_loop, of_accelerate_changed_with_its_releases) {
  const auto at = [](const std::string& release, std::uint32_t stage) {
    LoopSetting setting = on("deepspeed", stage);
    setting.packages["accelerate"] = release;
    return script_of("accelerate", setting);
  };
  EXPECT_EQ(at("1.7.0", 2), R"([{"repeat":{"of":[{"no_sync":[{"backward":{}},{"step":{}}]}],"times":3}},{"backward":{}},{"step":{}}])");
  EXPECT_EQ(at("1.8.1", 2), R"([{"repeat":{"of":[{"no_sync":[{"set_boundary":false},{"backward":{}}]}],"times":3}},{"set_boundary":true},{"backward":{}},{"step":{}}])");
  EXPECT_EQ(at("1.9.0", 2), R"([{"repeat":{"of":[{"set_boundary":false},{"backward":{}}],"times":3}},{"set_boundary":true},{"backward":{}},{"step":{}}])");
  EXPECT_EQ(at("1.9.0", 1), at("1.8.1", 2)) << "no_sync is entered below stage 2";
}

TEST(a_loop, of_the_trainer_changed_with_its_releases) {
  const auto at = [](const std::string& release, loops::Loss loss) {
    LoopSetting setting = on("deepspeed");
    setting.packages = {{"transformers", release}, {"accelerate", "1.7.0"}};
    setting.loss = loss;
    return script_of("hf-trainer", setting);
  };
  const auto engine_counts = [](const std::string& backward) {
    return R"([{"repeat":{"of":[{"backward":)" + backward + R"(},{"step":{}}],"times":3}},{"backward":)" + backward + R"(},{"step":{}}])";
  };
  EXPECT_EQ(at("4.47.1", loops::Loss::tokens), engine_counts(R"({"weight":"tokens/tokens_of_rank"})")) << "the engine divides once more";
  EXPECT_EQ(at("4.47.1", loops::Loss::mean), engine_counts("{}"));
  EXPECT_EQ(at("4.48.3", loops::Loss::mean), engine_counts(R"({"weight":"1/4"})"));
  EXPECT_EQ(at("4.51.3", loops::Loss::tokens), engine_counts(R"({"scale_wrt_gas":false,"weight":"tokens/tokens_of_rank"})"));
  EXPECT_EQ(at("5.23.0", loops::Loss::tokens), engine_counts(R"({"scale_wrt_gas":false,"weight":"world*tokens/tokens_of_window"})"));
  EXPECT_NE(at("4.45.2", loops::Loss::mean).find("no_sync"), std::string::npos) << "around accelerator.accumulate()";
}

TEST(a_loop, of_open_instruct_divides_by_tokens_since_2025_12_and_sets_the_boundary_since_2026) {
  LoopSetting setting = on("deepspeed");
  setting.packages["open-instruct"] = "2025.11";
  EXPECT_EQ(script_of("open-instruct", setting), R"([{"backward":{"micro_batches":4,"weight":"1/4"}},{"step":{}}])");
  setting.packages["open-instruct"] = "2025.12";
  EXPECT_EQ(script_of("open-instruct", setting), R"([{"backward":{"micro_batches":4,"weight":"world*tokens/tokens_of_window"}},{"step":{}}])");
  setting.packages["open-instruct"] = "2026.3";
  EXPECT_NE(script_of("open-instruct", setting).find("set_boundary"), std::string::npos);
}

TEST(a_loop, of_finetune_takes_means_unless_its_old_releases_are_told_to_sum) {
  LoopSetting setting = on("ddp");
  setting.packages["open-instruct"] = "2025.8";
  setting.packages["accelerate"] = "1.15.0";
  EXPECT_EQ(script_of("open-instruct-finetune", setting).find("tokens"), std::string::npos);
  setting.loss = loops::Loss::sum;
  EXPECT_NE(script_of("open-instruct-finetune", setting).find("tokens"), std::string::npos);
  const loops::Loop& loop = *loops::named("open-instruct-finetune");
  EXPECT_EQ(loop.refuses(setting), "");
  setting.packages["open-instruct"] = "2026.8";
  EXPECT_NE(loop.refuses(setting).find("open-instruct#1024"), std::string::npos);
}

// What was recorded of real trainers on two ranks (tests name the releases): a constant factor on every contribution, or none.
TEST(a_loop, of_the_trainer_weighs_as_recorded_ones_did) {
  struct Recorded {
    const char *transformers, *loss, *verdict;
  };
  for (const Recorded& r : {Recorded{"4.45.2", "mean", "clean"},
                            {"4.46.0", "mean", "x 4"},
                            {"4.47.1", "tokens", "clean"},
                            {"4.47.1", "mean", "x 4"},
                            {"4.51.3", "mean", "clean"},
                            {"4.54.1", "tokens", "clean"},
                            {"5.23.0", "tokens", "clean"},
                            {"5.23.0", "mean", "clean"}}) {
    audit::Request request = request_of("accelerate_multi_gpu.yaml", "hf-trainer");
    request.releases = {{"transformers", r.transformers}, {"accelerate", "1.2.1"}};
    request.loss = r.loss;
    request.micro_batches = 4;
    EXPECT_EQ(answered(request).text(), r.verdict) << r.transformers << " " << r.loss;
  }
}

TEST(a_loop, that_weighs_ranks_and_not_tokens_is_told_where_batches_differ) {
  audit::Request request = request_of("accelerate_multi_gpu.yaml", "hf-trainer");
  request.releases["transformers"] = "4.51.3";
  EXPECT_EQ(answered(request).text(), "clean");
  request.tokens = "uneven";
  EXPECT_EQ(answered(request).text(), "wrong scale");
  request.releases["transformers"] = "5.23.0";
  EXPECT_EQ(answered(request).text(), "clean");
}

TEST(a_loop, that_divides_twice_or_raises_is_told) {
  EXPECT_EQ(answered(request_of("zero2_auto_offload.json", "lightning", "0.19.8")).text(), "x 1/4");
  audit::Request request = request_of("zero2_auto_offload.json", "accelerate", "0.19.8");
  EXPECT_EQ(answered(request).text(), "clean");
  request.releases["accelerate"] = "1.8.0";
  EXPECT_EQ(answered(request).text(), "raises");
}

TEST(every_loop, runs_on_every_framework_that_it_is_for) {
  for (const loops::Loop& loop : loops::all())
    for (const auto& [framework, file] : std::map<std::string, std::string>{{"deepspeed", "zero2_auto_offload.json"},
                                                                            {"ddp", "accelerate_multi_gpu.yaml"},
                                                                            {"fsdp1", "accelerate_fsdp1.yaml"},
                                                                            {"fsdp2", "accelerate_fsdp2.yaml"},
                                                                            {"megatron", "megatron_pretrain.sh"}}) {
      const audit::Request request = request_of(file, std::string(loop.name));
      if (!loop.runs_on(framework)) {
        EXPECT_EQ(errors_of(request).size(), 1u) << loop.name << " " << file;
        continue;
      }
      const audit::Answer answer = answered(request);
      EXPECT_EQ(answer.refused, "") << loop.name << " " << file;
      EXPECT_TRUE(answer.judged()) << loop.name << " " << file;
    }
}

}  // namespace
}  // namespace gradledger::testing
