// Set-ups of FullyShardedDataParallel, from the files that people have: by the releases of what reads them.
#include <algorithm>
#include <fstream>

#include "audit/sweep.h"
#include "sim/scenario/parse.h"
#include "tests/audit/support.h"

namespace gradledger::testing {
namespace {

using report::AuditOutcome;

bool has_part(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(), [&](const std::string& text) { return text.find(part) != text.npos; });
}

bool is_filled(const audit::Setup& setup, const std::string& pointer, const std::string& value) {
  return std::any_of(setup.filled.begin(), setup.filled.end(), [&](const report::AuditFilled& f) { return f.pointer == pointer && f.value == value; });
}

// A file of its own: accelerate's, arguments of a Trainer, or the wrapper's.
class Written {
 public:
  Written(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path() / name) << text;
    const bool trainer = name.starts_with("trainer");
    (trainer ? request.files.arguments : request.files.config) = folder_.path() / name;
  }
  audit::Request request;

 private:
  TemporaryFolder folder_;
};

audit::Setup launched(const std::string& section, const std::string& beside = "num_processes: 4\n") {
  const Written file("c.yaml", "distributed_type: FSDP\n" + beside + "fsdp_config:\n" + section);
  return setup_of(file.request);
}

audit::Setup trained(const std::string& transformers, const json& fsdp, const json& section) {
  Written file("trainer.json", json{{"fsdp", fsdp}, {"fsdp_config", section}}.dump());
  if (!transformers.empty()) file.request.releases["transformers"] = transformers;
  return setup_of(file.request);
}

TEST(accelerates_file, of_fsdp1_says_what_is_sharded_and_when_it_is_gathered) {
  const audit::Setup setup = setup_of(request_of("accelerate_fsdp1.yaml", "accelerate"));
  ASSERT_TRUE(setup.framework);
  EXPECT_EQ(setup.framework->id(), "fsdp1");
  EXPECT_EQ(setup.ranks, 4u);
  EXPECT_EQ(setup.config,
            (json{{"sharding_strategy", "SHARD_GRAD_OP"}, {"backward_prefetch", "BACKWARD_PRE"}, {"mixed_precision", {{"param_dtype", "bf16"}, {"reduce_dtype", "bf16"}}}}));
  EXPECT_EQ(setup.model_dtype, "fp32");
  EXPECT_TRUE(setup.unknown.empty());
  for (const char* key : {"/fsdp_activation_checkpointing", "/fsdp_cpu_ram_efficient_loading", "/fsdp_state_dict_type", "/fsdp_sync_module_states"})
    EXPECT_EQ(std::count(setup.ignored.begin(), setup.ignored.end(), key), 1) << key;
}

TEST(accelerates_file, of_fsdp1_is_told_all_its_errors_with_their_places) {
  const audit::Request request = request_of("accelerate_fsdp1_mistakes.yaml", "accelerate");
  const std::vector<std::string> errors = errors_of(request);
  EXPECT_EQ(errors.size(), 4u);
  EXPECT_TRUE(has_part(errors, ":3:26: /fsdp_auto_wrap_policy: is \"BANANA\""));
  EXPECT_TRUE(has_part(errors, "/fsdp_backward_prefetch: is \"BACKWARDS\"; expected BACKWARD_PRE (1), BACKWARD_POST (2) or NO_PREFETCH"));
  EXPECT_TRUE(has_part(errors, "/fsdp_offload_params: is \"maybe\"; expected true or false"));
  EXPECT_TRUE(has_part(errors, "/fsdp_sharding_strategy: is 6; expected FULL_SHARD (1)"));
}

TEST(accelerates_file, of_fsdp1_names_strategies_by_word_or_number) {
  for (const char* same : {"SHARD_GRAD_OP", "shard_grad_op", "2", "'2'", "ShardingStrategy.SHARD_GRAD_OP"})
    EXPECT_EQ(launched(std::string("  fsdp_version: 1\n  fsdp_sharding_strategy: ") + same + "\n").config["sharding_strategy"], "SHARD_GRAD_OP") << same;
  EXPECT_FALSE(launched("  fsdp_version: 1\n  fsdp_sharding_strategy: 1\n").config.contains("sharding_strategy")) << "it is the default";
  EXPECT_EQ(launched("  fsdp_version: 1\n  fsdp_use_orig_parms: true\n").unknown, (std::vector<std::string>{"/fsdp_use_orig_parms; did you mean \"use_orig_params\"?"}));
}

// accelerate/commands/launch.py, of 0.34.2 to 1.15.0.
TEST(accelerates_file, of_fsdp1_has_the_defaults_of_the_launcher) {
  const audit::Setup setup = launched("  fsdp_offload_params: false\n");
  EXPECT_EQ(setup.framework->id(), "fsdp1");
  EXPECT_TRUE(has_part(setup.notes, "names no fsdp_version: FSDP1, as accelerate 1.15.0 (assumed, the newest that was read) takes it"));
  EXPECT_EQ(setup.config, (json{{"use_orig_params", true}, {"backward_prefetch", "none"}, {"wrap", "root"}}));
  EXPECT_TRUE(is_filled(setup, "/use_orig_params", "true"));
  Written file("c.yaml", "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 3\n");
  EXPECT_TRUE(has_part(errors_of(file.request), "is 3; expected 1, FullyShardedDataParallel, or 2, fully_shard"));
}

TEST(accelerates_file, of_fsdp1_shards_within_a_machine) {
  const audit::Setup setup = launched("  fsdp_version: 1\n  fsdp_sharding_strategy: HYBRID_SHARD\n", "num_processes: 4\nnum_machines: 2\n");
  EXPECT_EQ(setup.config["mesh"], (json{"replicate", "shard"}));
  EXPECT_EQ(setup.groups, (json{{"replicate", {{0, 2}, {1, 3}}}, {"shard", {{0, 1}, {2, 3}}}}));
  const audit::Setup apart = launched("  fsdp_version: 1\n  fsdp_sharding_strategy: HYBRID_SHARD\n", "num_processes: 2\nnum_machines: 2\n");
  EXPECT_EQ(apart.config["sharding_strategy"], "HYBRID_SHARD");
  EXPECT_EQ(apart.groups, json::parse(R"({"replicate": [[0, 1]], "shard": [[0], [1]]})"));
  const audit::Setup lone = launched("  fsdp_version: 1\n  fsdp_sharding_strategy: 5\n", "num_processes: 4\nnum_machines: 1\n");
  EXPECT_EQ(lone.config["sharding_strategy"], "SHARD_GRAD_OP");
  EXPECT_TRUE(has_part(lone.notes, "_HYBRID_SHARD_ZERO2 on one machine with no other one to replicate over is replayed as SHARD_GRAD_OP."));
  const Written odd("c.yaml", "distributed_type: FSDP\nnum_processes: 4\nnum_machines: 3\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n");
  EXPECT_TRUE(has_part(errors_of(odd.request), "4 ranks are on 3 machines; expected as many on each"));
}

// transformers/training_args.py: fsdp_config has version 1 where it names none until 5.9, and 2 since 5.10.
TEST(a_trainers_arguments, of_fsdp_are_of_the_version_that_their_release_takes) {
  EXPECT_EQ(trained("5.9.0", "full_shard", json::object()).framework->id(), "fsdp1");
  EXPECT_EQ(trained("5.10.0", "full_shard", json::object()).framework->id(), "fsdp2");
  EXPECT_EQ(trained("", "full_shard", json::object()).framework->id(), "fsdp2");
  const audit::Setup old = trained("4.57.6", "full_shard", {{"version", 2}});
  EXPECT_EQ(old.framework->id(), "fsdp1");
  EXPECT_TRUE(has_part(old.notes, "transformers 4.57.6 does not read the version of fsdp_config"));
}

TEST(a_trainers_arguments, of_fsdp1_are_words_and_a_section) {
  const audit::Setup old = trained("4.57.6", "shard_grad_op auto_wrap offload", {{"use_orig_params", "false"}, {"sharding_strategy", "NO_SHARD"}});
  EXPECT_EQ(old.config, (json{{"sharding_strategy", "SHARD_GRAD_OP"}, {"offload", true}, {"backward_prefetch", "none"}}));
  EXPECT_TRUE(has_part(old.notes, "does not read sharding_strategy of fsdp_config"));
  EXPECT_EQ(trained("4.57.6", "full_shard", json::object()).config["wrap"], "root") << "without auto_wrap";
  EXPECT_FALSE(trained("5.23.0", "full_shard", {{"version", 1}}).config.contains("wrap")) << "which wraps by default since 5.10";
  const Written wrong("trainer.json", R"({"fsdp": "full_shrad offload", "fsdp_config": {"version": 1}})");
  EXPECT_TRUE(has_part(errors_of(wrong.request),
                       "has \"full_shrad\", which FSDP1 has not; expected full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2, offload, auto_wrap"));
}

// Run with transformers 5.23.0 and accelerate 1.15.0: fsdp="no_shard" with version 1 gives a model with FULL_SHARD.
TEST(a_trainers_arguments, of_fsdp1_lose_their_strategy_since_5_4) {
  EXPECT_EQ(trained("5.3.0", "no_shard", {{"version", 1}}).config["sharding_strategy"], "NO_SHARD");
  const audit::Setup setup = trained("5.4.0", "no_shard", {{"version", 1}});
  EXPECT_FALSE(setup.config.contains("sharding_strategy"));
  EXPECT_TRUE(has_part(setup.notes, "/reshard_after_forward is NO_SHARD, and with version 1 accelerate reads sharding_strategy alone"));
}

TEST(arguments_of_the_wrapper, are_those_of_fsdp1_with_its_own_defaults) {
  Written file("o.json", R"({"cpu_offload": {"offload_params": true}, "sharding_strategy": 3, "mixed_precision": {"param_dtype": "torch.bfloat16", "buffer_dtype": "float32"},
                             "ignored_modules": ["head"], "device_id": 0, "backward_prefetch": null})");
  file.request.files.framework = "fsdp1";
  const audit::Setup setup = setup_of(file.request);
  EXPECT_EQ(setup.config, (json{{"offload", true}, {"sharding_strategy", "NO_SHARD"}, {"mixed_precision", {{"param_dtype", "bf16"}}}}));
  EXPECT_EQ(setup.ignored, (std::vector<std::string>{"/device_id", "/mixed_precision/buffer_dtype"}));
  EXPECT_EQ(setup.not_modelled, (std::vector<std::string>{"/ignored_modules: parameters that FullyShardedDataParallel leaves alone"}));
}

TEST(an_audit, of_accelerate_on_fsdp1_in_16_bits_is_clean) {
  const report::AuditReport report = audited(request_of("accelerate_fsdp1.yaml", "accelerate"));
  EXPECT_EQ(report.outcome, AuditOutcome::not_affected);
  EXPECT_FALSE(has_part(report.not_judged, "round"));
}

// On a GPU no window holds another one's gradients; they do where modules compute on the CPU too (docs/fsdp1.md), which no launcher asks for.
TEST(an_audit, of_offload_with_original_parameters_finds_nothing_where_modules_compute_on_a_device) {
  Written file("c.yaml", "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n  fsdp_offload_params: true\nnum_processes: 2\n");
  file.request.loop = "accelerate";
  const report::AuditReport report = audited(file.request, audit::Sweep::stages);
  EXPECT_EQ(report.verdict, "clean");
  ASSERT_EQ(report.matrices.size(), 1u);
  EXPECT_EQ(report.matrices[0].columns, (std::vector<std::string>{"FULL_SHARD", "FULL_SHARD offload", "SHARD_GRAD_OP", "SHARD_GRAD_OP offload", "NO_SHARD", "NO_SHARD offload"}));
  EXPECT_EQ(report.matrices[0].rows[0].cells, (std::vector<std::string>{"clean", "clean", "clean", "clean", "clean", "clean"}));
}

// PyTorch's documentation excludes reductions of several micro-batches with CPU offload: sync_each_batch asks for them.
TEST(an_audit, of_every_micro_batch_reduced_with_offload_finds_what_is_lost) {
  Written file("c.yaml", "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n  fsdp_offload_params: true\n  fsdp_use_orig_params: false\nnum_processes: 2\n");
  file.request.loop = "accelerate";
  EXPECT_EQ(answered(file.request).text(), "clean");
  file.request.sync_each_batch = true;
  const report::AuditReport report = audited(file.request);
  EXPECT_EQ(report.verdict, "loses 3 of 4");
  EXPECT_TRUE(std::any_of(report.advice.begin(), report.advice.end(), [](const report::AuditAdvice& a) { return a.clean && a.says == "leave out sync_each_batch"; }));
}

TEST(a_loop, of_the_trainer_reads_sync_each_batch_from_its_accelerator_config_since_5_2) {
  const auto holds_back = [](const std::string& release) {
    Written file("trainer.json", R"({"accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": true}}})");
    file.request.releases["transformers"] = release;
    return serialise(*answered(file.request).scenario).find("no_sync") != std::string::npos;
  };
  EXPECT_FALSE(holds_back("4.46.0")) << "around accelerator.accumulate()";
  EXPECT_TRUE(holds_back("4.47.1"));
  EXPECT_TRUE(holds_back("5.1.0"));
  EXPECT_FALSE(holds_back("5.2.0"));
}

}  // namespace
}  // namespace gradledger::testing
