// Set-ups of fully_shard and of Megatron-Core, from the files that people have.
#include <algorithm>
#include <fstream>

#include "audit/arguments_file.h"
#include "audit/sweep.h"
#include "sim/scenario/parse.h"
#include "tests/audit/support.h"

namespace gradledger::testing {
namespace {

using report::AuditOutcome;

bool contains(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(), [&](const std::string& text) { return text.find(part) != text.npos; });
}

bool helps(const report::AuditReport& report, const std::string& part) {
  return std::any_of(report.advice.begin(), report.advice.end(), [&](const report::AuditAdvice& a) { return a.clean && a.says.find(part) != a.says.npos; });
}

audit::Request megatron(const std::string& loop, const std::string& release) {
  audit::Request out = request_of("megatron_pretrain.sh", loop);
  out.releases["megatron-core"] = release;
  return out;
}

// A file of its own, read as one of accelerate.
std::vector<std::string> errors_of_text(const std::string& name, const std::string& text) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / name) << text;
  audit::Request request = request_of("", "");
  request.files.config = folder.path() / name;
  return errors_of(request);
}

TEST(accelerates_file, of_fsdp2_says_how_weights_are_sharded_and_in_which_dtype) {
  const audit::Setup setup = setup_of(request_of("accelerate_fsdp2.yaml", "accelerate"));
  ASSERT_TRUE(setup.framework);
  EXPECT_EQ(setup.framework->id(), "fsdp2");
  EXPECT_EQ(setup.ranks, 4u);
  EXPECT_EQ(setup.config, (json{{"reshard_after_forward", true}, {"mixed_precision", {{"param_dtype", "bf16"}, {"reduce_dtype", "bf16"}}}}));
  EXPECT_EQ(setup.model_dtype, "fp32");
  EXPECT_TRUE(setup.unknown.empty());
  for (const char* key : {"/fsdp_activation_checkpointing", "/fsdp_cpu_ram_efficient_loading", "/fsdp_state_dict_type", "/fsdp_transformer_layer_cls_to_wrap"})
    EXPECT_EQ(std::count(setup.ignored.begin(), setup.ignored.end(), key), 1) << key;
}

TEST(accelerates_file, of_fsdp2_is_told_all_its_errors_with_their_places) {
  const std::vector<std::string> errors = errors_of(request_of("accelerate_fsdp2_mistakes.yaml", "accelerate"));
  EXPECT_EQ(errors.size(), 3u);
  EXPECT_TRUE(contains(errors, ":6:26: /fsdp_auto_wrap_policy: is \"BANANA\""));
  EXPECT_TRUE(contains(errors, "/fsdp_offload_params: is \"maybe\""));
  EXPECT_TRUE(contains(errors, "/fsdp_reshard_after_forward: is \"FULL_SHARD\""));
}

TEST(accelerates_file, of_what_has_no_model_is_refused_by_name) {
  EXPECT_TRUE(contains(errors_of_text("c.yaml", "distributed_type: MEGATRON_LM\n"), "expected DEEPSPEED, FSDP or MULTI_GPU"));
}

TEST(accelerates_file, with_ranks_that_are_not_all_alike_is_not_judged) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "c.yaml") << "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nparallelism_config:\n  parallelism_config_dp_replicate_size: 2\n"
                                             "  parallelism_config_dp_shard_size: 4\n";
  audit::Request request = request_of("", "accelerate");
  request.files.config = folder.path() / "c.yaml";
  const report::AuditReport report = audited(request);
  EXPECT_EQ(report.outcome, AuditOutcome::not_judged);
  EXPECT_TRUE(contains(report.not_judged, "/parallelism_config/parallelism_config_dp_replicate_size"));
  EXPECT_FALSE(contains(report.not_judged, "dp_shard_size"));
}

TEST(a_trainers_arguments, of_fsdp_are_those_of_fully_shard) {
  audit::Request request = request_of("", "");
  request.files.arguments = audit_file("trainer_args_fsdp2.json");
  const audit::Setup setup = setup_of(request);
  ASSERT_TRUE(setup.framework);
  EXPECT_EQ(setup.framework->id(), "fsdp2");
  EXPECT_EQ(setup.config["offload"], true);
  EXPECT_EQ(setup.setting.micro_batches, 4u);
  EXPECT_EQ(setup.unknown, (std::vector<std::string>{"/reshard_after_forwrd; did you mean \"reshard_after_forward\"?"}));
}

TEST(an_audit, of_a_release_of_pytorch_that_was_not_compared_is_refused_or_says_so) {
  audit::Request request = request_of("accelerate_fsdp2.yaml", "accelerate");
  request.releases["torch"] = "2.3.1+cu121";
  EXPECT_EQ(errors_of(request),
            (std::vector<std::string>{R"(--pytorch: is "2.3.1"; of PyTorch 2.4.0 to 2.15.0 are modelled: expected one of these, or "head", which is the newest)"}));
  request.releases["torch"] = "2.6.0+cu124";
  EXPECT_EQ(setup_of(request).as_of, "2.6.0");
  request.releases["torch"] = "2.16.0";
  EXPECT_TRUE(contains(setup_of(request).notes, "PyTorch 2.16.0 is newer than every release that was compared; taken as 2.15.0."));
}

TEST(a_loop, of_accelerate_on_fully_shard_holds_reductions_back_since_1_11) {
  const auto script_at = [](const std::string& release) {
    audit::Request request = request_of("accelerate_fsdp2.yaml", "accelerate");
    request.releases["accelerate"] = release;
    return serialise(*answered(request).scenario);
  };
  EXPECT_EQ(script_at("1.10.0").find("no_sync"), std::string::npos);
  EXPECT_NE(script_at("1.11.0").find("no_sync"), std::string::npos);
  audit::Request older = request_of("accelerate_fsdp2.yaml", "accelerate");
  older.releases["accelerate"] = "1.5.0";
  EXPECT_TRUE(contains(errors_of(older), "expected 1.6.0 or newer"));
}

// transformers 4.46 and 4.47 do not divide a loss that is a mean: on fully_shard as on any other wrapper.
TEST(an_audit, of_fully_shard_names_what_is_wrong_and_the_release_that_mended_it) {
  audit::Request request = request_of("accelerate_fsdp2.yaml", "hf-trainer");
  request.releases["transformers"] = "4.47.1";
  request.loss = "mean";
  const report::AuditReport report = audited(request);
  EXPECT_EQ(report.verdict, "x 4");
  EXPECT_TRUE(helps(report, "upgrade transformers to 4.48.0"));
}

TEST(arguments, are_read_as_a_shell_has_them) {
  const auto read = audit::arguments_of(
      "#!/bin/sh\nN=4\nA=(\n  --nproc_per_node $N # eight\n  --name 'two words' --split 949,50,1\n)\nrun ${A[@]} train.py --lr=0.5 \\\n  --data-path a b --last ; echo c", "t.sh");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->json, (json{{"nproc_per_node", 4}, {"name", "two words"}, {"split", "949,50,1"}, {"lr", 0.5}, {"data_path", {"a", "b"}}, {"last", true}}));
  EXPECT_EQ(read->where("/nproc_per_node"), "t.sh:4:3: /nproc_per_node");
  EXPECT_EQ(audit::ranks_of(read->json), 4u);
  EXPECT_FALSE(audit::ranks_of(json{{"nproc_per_node", 8}, {"nnodes", "$NODES"}}));
  EXPECT_FALSE(audit::arguments_of("echo hello", "t.sh"));
}

TEST(a_megatron_script, says_ranks_windows_and_configuration) {
  const audit::Setup setup = setup_of(request_of("megatron_pretrain.sh", ""));
  ASSERT_TRUE(setup.framework);
  EXPECT_EQ(setup.framework->id(), "megatron");
  ASSERT_TRUE(setup.loop);
  EXPECT_EQ(setup.loop->name, "megatron");
  EXPECT_EQ(setup.ranks, 8u);
  EXPECT_EQ(setup.layout, (json{{"tp", 2}})) << "two hold the parts of one weight";
  EXPECT_EQ(setup.setting.micro_batches, 8u);
  EXPECT_EQ(setup.model_dtype, "bf16");
  EXPECT_EQ(setup.config["ddp"]["grad_reduce_in_fp32"], true) << "Megatron-LM's own with bf16";
  EXPECT_EQ(setup.config["ddp"]["overlap_grad_reduce"], true);
  EXPECT_FALSE(setup.config["ddp"].contains("overlap_param_gather")) << "it stands in a comment";
  EXPECT_EQ(setup.config["optimizer_config"]["clip_grad"], 1.0);
  EXPECT_EQ(setup.optimizer["betas"], (json{0.9, 0.95}));
  EXPECT_EQ(setup.unknown, (std::vector<std::string>{"/overlap_grad_redcue; did you mean \"overlap_grad_reduce\"?"}));
  EXPECT_EQ(setup.ignored, (std::vector<std::string>{"/hidden_size", "/nnodes", "/nproc_per_node", "/num_layers"}));
}

TEST(a_megatron_script, is_told_all_its_errors_with_their_places) {
  const std::vector<std::string> errors = errors_of(request_of("megatron_many_mistakes.args", ""));
  EXPECT_EQ(errors.size(), 5u);
  EXPECT_TRUE(contains(errors, ":3:1: /lr: is \"lots\""));
  EXPECT_TRUE(contains(errors, ":3:11: /overlap_grad_reduce: is \"yes\""));
  EXPECT_TRUE(contains(errors, "/num_distributed_optimizer_instances: is \"$N\""));
  EXPECT_TRUE(contains(errors, "/fp16: is given, and so is bf16"));
  EXPECT_TRUE(contains(errors, "/global_batch_size: is 32, which is not divisible by micro_batch_size 3 times 8"));
  audit::Request request = megatron("", "0.5.0");
  EXPECT_TRUE(contains(errors_of(request), "--release megatron-core: is \"0.5.0\""));
  request = request_of("megatron_pretrain.sh", "");
  request.micro_batches = 3;
  EXPECT_TRUE(contains(errors_of(request), "--micro-batches: is 3, and the batch sizes of the file make it 8"));
}

TEST(an_audit, of_megatrons_own_loop_is_clean_at_every_release) {
  const report::AuditReport report = audited(megatron("", "0.16.1"));
  EXPECT_EQ(report.outcome, AuditOutcome::not_affected);
  ASSERT_EQ(report.releases.size(), 1u);
  EXPECT_EQ(report.releases[0].package, "megatron-core");
  EXPECT_EQ(report.releases[0].releases, "0.8.0 to 0.19.2");
}

// Until 0.15 a bucket is sent once each of its parameters was ready once, and a second time is refused (Megatron-LM#2837).
TEST(an_audit, of_a_loop_that_reduces_every_micro_batch_dates_its_failure_on_megatron) {
  const report::AuditReport report = audited(megatron("manual", "0.15.0"), audit::Sweep::all);
  EXPECT_EQ(report.verdict, "raises");
  EXPECT_EQ(report.since, "0.8.0 or before");
  EXPECT_EQ(report.fixed, "0.16.0");
  EXPECT_TRUE(helps(report, "upgrade Megatron-Core to 0.16.0"));
  EXPECT_TRUE(helps(report, "leave out overlap_grad_reduce"));
  EXPECT_TRUE(helps(report, "write the loop as megatron"));
  ASSERT_EQ(report.matrices.size(), 1u);
  EXPECT_EQ(report.matrices[0].columns, (std::vector<std::string>{"plain", "overlap", "distributed", "distributed overlap"}));
  EXPECT_EQ(report.matrices[0].rows.front().cells, (std::vector<std::string>{"clean", "raises", "clean", "raises"}));
  EXPECT_EQ(report.matrices[0].rows.back().cells, (std::vector<std::string>{"clean", "clean", "clean", "clean"}));
}

// Megatron-LM#1685: nobody calls finalize_model_grads, so nothing is reduced.
TEST(an_audit, of_a_megatron_loop_that_never_finalizes_finds_private_gradients) {
  audit::Request request = megatron("no-boundary", "0.16.1");
  request.leave_out = {"/overlap_grad_reduce"};
  const report::AuditReport report = audited(request);
  EXPECT_EQ(report.outcome, AuditOutcome::affected);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].finding, ref::FindingClass::missing_reduction);
  EXPECT_TRUE(helps(report, "write the loop as megatron"));
}

// Megatron-LM#906: until 0.8 the divisor leaves context-parallel ranks out.
TEST(an_audit, of_context_parallel_ranks_names_the_factor_of_0_8) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "c.args") << "--nproc_per_node 8 --context-parallel-size 2 --micro-batch-size 1 --global-batch-size 8 --bf16 --use-distributed-optimizer";
  audit::Request request = request_of("", "");
  request.files.config = folder.path() / "c.args";
  request.releases["megatron-core"] = "0.8.0";
  EXPECT_EQ(answered(request).text(), "x 2");
  EXPECT_EQ(answered(request).scenario->world_size, 8u);
  request.releases["megatron-core"] = "0.9.0";
  EXPECT_EQ(answered(request).text(), "clean");
}

TEST(an_audit, of_what_megatron_has_and_no_model_is_never_clean) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "m.args") << "--mtp-num-layers 1 --rampup-batch-size 0 --fp8-format hybrid --num-layers 2 --bf16";
  audit::Request request = request_of("", "");
  request.files.config = folder.path() / "m.args";
  const report::AuditReport report = audited(request);
  EXPECT_EQ(report.outcome, AuditOutcome::not_judged);
  EXPECT_TRUE(contains(report.not_judged, "/mtp_num_layers: losses"));
  EXPECT_TRUE(contains(report.not_judged, "/fp8_format: fp8"));
  EXPECT_FALSE(contains(report.not_judged, "/rampup_batch_size")) << "0 asks for nothing";
  request.leave_out = {"/mtp_num_layers", "/fp8_format"};
  EXPECT_EQ(audited(request).outcome, AuditOutcome::not_affected);
}

}  // namespace
}  // namespace gradledger::testing
