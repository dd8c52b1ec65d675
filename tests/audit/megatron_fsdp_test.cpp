// Set-ups of Megatron-FSDP, from the arguments of its fully_shard.
#include <algorithm>
#include <fstream>

#include "tests/audit/support.h"

namespace gradledger::testing {
namespace {

using report::AuditOutcome;

class Arguments {
 public:
  Arguments(const std::string& text, const std::string& loop, const std::string& release) {
    std::ofstream(folder_.path() / "options.json") << text;
    request_ = request_of("", loop);
    request_.files.config = folder_.path() / "options.json";
    request_.files.framework = "megatron-fsdp";
    request_.ranks = 2;
    request_.releases["megatron-fsdp"] = release;
  }

  audit::Request& request() { return request_; }
  audit::Setup setup() const { return setup_of(request_); }
  report::AuditReport report() const { return audited(request_); }
  std::string verdict() const { return answered(request_).text(); }
  std::vector<std::string> errors() const { return errors_of(request_); }

 protected:
  const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
  audit::Request request_;
};

bool names(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(), [&](const std::string& text) { return text.find(part) != text.npos; });
}

TEST(megatron_fsdp_arguments, are_read_as_fully_shard_takes_them) {
  const audit::Setup setup =
      Arguments(R"({"zero_dp_strategy": 2, "outer_dp_sharding_strategy": "no_shard", "nccl_ub": true, "fsdp_unit_modules": ["Layer"], "fsdp_double_buffer": true,
                    "mixed_precision_policy": {"main_grads_dtype": "torch.float32", "grad_comm_dtype": null}, "sync_model_each_microbatc": false})",
                "manual", "0.6.1")
          .setup();
  EXPECT_EQ(setup.config, (json{{"zero_dp_strategy", "optim_grads"}, {"mixed_precision", {{"main_grads_dtype", "fp32"}, {"grad_comm_dtype", nullptr}}}}));
  EXPECT_EQ(setup.as_of, "0.6.1");
  EXPECT_EQ(setup.model_dtype, "bf16");
  EXPECT_EQ(setup.ignored, (std::vector<std::string>{"/fsdp_unit_modules", "/nccl_ub", "/outer_dp_sharding_strategy"}));
  EXPECT_TRUE(names(setup.not_modelled, "/fsdp_double_buffer: buckets that share memory"));
  EXPECT_TRUE(names(setup.unknown, "did you mean \"sync_model_each_microbatch\"?"));
  EXPECT_EQ(Arguments(R"({"grad_reduce_in_fp32": true, "preserve_fp32_weights": false})", "manual", "0.2.3").setup().config["mixed_precision"],
            (json{{"main_grads_dtype", "fp32"}, {"main_params_dtype", nullptr}}));
  EXPECT_TRUE(names(Arguments(R"({"zero_dp_strategy": 7})", "manual", "0.6.1").errors(), "/zero_dp_strategy: is 7"));
  EXPECT_TRUE(names(Arguments("{}", "manual", "0.0.9").errors(), "releases are modelled from 0.1.0 on"));
}

// Megatron-LM#3023: in bf16 each reduction divided the backwards before it.
TEST(an_audit_of_megatron_fsdp, dates_the_accumulator_that_was_divided) {
  const report::AuditReport report = Arguments("{}", "manual", "0.2.3").report();
  EXPECT_EQ(report.outcome, AuditOutcome::affected);
  EXPECT_EQ(report.since, "0.1.0 or before");
  EXPECT_EQ(report.fixed, "0.3.0");
  ASSERT_FALSE(report.findings.empty());
  ASSERT_TRUE(report.findings.front().known);
  EXPECT_EQ(report.findings.front().known->entry, "mfsdp-1");
  EXPECT_TRUE(std::any_of(report.advice.begin(), report.advice.end(), [](const report::AuditAdvice& a) { return a.clean && a.says.find("upgrade Megatron-FSDP to 0.3.0") == 0; }));
  Arguments newest("{}", "manual", "0.6.1");
  newest.request().optimizer = "sgd";
  EXPECT_EQ(newest.verdict(), "clean");
}

// Megatron-LM#5976: runs of 0.4.0, 0.5.1 and 0.6.1 had counted a step, and those of 0.1.0, 0.2.3 and 0.3.1 had not.
TEST(an_audit_of_megatron_fsdp, dates_the_step_that_makes_adams_state) {
  const report::AuditReport report = Arguments("{}", "manual", "0.6.1").report();
  ASSERT_FALSE(report.findings.empty());
  ASSERT_TRUE(report.findings.front().known);
  EXPECT_EQ(report.findings.front().known->entry, "mfsdp-8");
  EXPECT_EQ(report.since, "0.4.0");
  EXPECT_EQ(Arguments("{}", "manual", "0.3.1").verdict(), "clean");
}

TEST(an_audit_of_megatron_fsdp, shows_that_no_sync_defers_nothing_by_default) {
  Arguments whole(R"({"zero_dp_strategy": "optim"})", "no-sync", "0.6.1");
  whole.request().optimizer = "sgd";
  const report::AuditReport report = whole.report();
  EXPECT_EQ(report.outcome, AuditOutcome::affected);
  EXPECT_TRUE(std::any_of(report.advice.begin(), report.advice.end(), [](const report::AuditAdvice& a) { return a.clean && a.says == "set sync_model_each_microbatch to False"; }));
}

// A script that starts Megatron-LM.
class FsdpScript : public Arguments {
 public:
  explicit FsdpScript(const std::string& arguments, const std::string& core = "") : Arguments("{}", "", "head") {
    std::ofstream(folder().path() / "train.sh") << "#!/bin/bash\ntorchrun --nproc_per_node 2 pretrain_gpt.py --bf16 --micro-batch-size 1 --global-batch-size 8 --use-megatron-fsdp "
                                                << arguments << "\n";
    request().files = {};
    request().files.config = folder().path() / "train.sh";
    request().releases.clear();
    if (!core.empty()) request().releases["megatron-core"] = core;
  }
};

TEST(megatron_lm_with_megatron_fsdp, is_read_as_the_configuration_that_its_adapter_makes) {
  const audit::Setup setup = FsdpScript("--data-parallel-sharding-strategy optim --grad-reduce-in-bf16 --init-model-with-meta-device").setup();
  EXPECT_EQ(setup.framework->id(), "megatron-fsdp");
  EXPECT_EQ(setup.loop->name, "megatron");
  EXPECT_EQ(setup.setting.micro_batches, 4u);
  EXPECT_EQ(setup.config, (json{{"zero_dp_strategy", "optim"},
                                {"wrap", "root"},
                                {"sync_model_each_microbatch", false},
                                {"fully_shard_optimizer", false},
                                {"overlap_grad_reduce", false},
                                {"mixed_precision", {{"grad_comm_dtype", "bf16"}}}}));
  EXPECT_TRUE(names(setup.not_judged, "clipping"));
  EXPECT_FALSE(FsdpScript("--data-parallel-sharding-strategy optim --overlap-grad-reduce").setup().config.contains("overlap_grad_reduce"));
  EXPECT_TRUE(names(FsdpScript("--tensor-model-parallel-size 2").setup().not_modelled, "/tensor_model_parallel_size: parts of a model in Megatron-FSDP"));
  EXPECT_TRUE(names(FsdpScript("--data-parallel-sharding-strategy zero3").errors(), "/data_parallel_sharding_strategy"));
}

TEST(megatron_lm_with_megatron_fsdp, has_the_defaults_and_the_code_of_its_release) {
  EXPECT_EQ(FsdpScript("", "0.17.0").setup().config["zero_dp_strategy"], "no_shard");
  EXPECT_EQ(FsdpScript("", "0.18.0").setup().config["zero_dp_strategy"], "optim_grads_params");
  EXPECT_EQ(FsdpScript("", "0.17.0").setup().config["mixed_precision"], (json{{"main_grads_dtype", "fp32"}}));
  EXPECT_FALSE(FsdpScript("", "0.18.0").setup().config.contains("mixed_precision"));
  EXPECT_EQ(FsdpScript("", "0.15.3").setup().as_of, "0.2.3");
  EXPECT_EQ(FsdpScript("", "0.17.1").setup().as_of, "0.4.0");
  EXPECT_TRUE(names(FsdpScript("", "0.13.1").errors(), "expected 0.14 or later"));
}

// The optimizer of Megatron-Core takes no step when it is made, and its step() reduces nothing.
TEST(megatron_lm_with_megatron_fsdp, is_clean_in_its_own_loop_and_affected_where_finalize_model_grads_reduces_again) {
  EXPECT_EQ(FsdpScript("").report().outcome, AuditOutcome::not_affected);
  EXPECT_EQ(FsdpScript("--data-parallel-sharding-strategy optim --overlap-grad-reduce").report().outcome, AuditOutcome::not_affected);
  const report::AuditReport twice = FsdpScript("--data-parallel-sharding-strategy optim").report();
  EXPECT_EQ(twice.outcome, AuditOutcome::affected);
  EXPECT_EQ(twice.since, "0.3.0");
}

TEST(megatron_lm_with_the_second_version, is_judged_where_its_wrapper_takes_the_arguments) {
  FsdpScript plain("--megatron-fsdp-version 2");
  EXPECT_EQ(plain.setup().framework->id(), "megatron-fsdp-v2");
  EXPECT_EQ(plain.setup().config, json::object());
  EXPECT_EQ(plain.report().outcome, AuditOutcome::not_affected);
  EXPECT_FALSE(FsdpScript("--megatron-fsdp-version 2 --grad-reduce-in-bf16").setup().config.contains("mixed_precision"));
  EXPECT_TRUE(names(FsdpScript("--megatron-fsdp-version 2 --tensor-model-parallel-size 2").setup().not_modelled, "/tensor_model_parallel_size"));
  EXPECT_TRUE(names(FsdpScript("--megatron-fsdp-version 2 --data-parallel-sharding-strategy optim").errors(), "requires \"optim_grads_params\""));
  EXPECT_TRUE(names(FsdpScript("--megatron-fsdp-version 3").errors(), "expected 1 or 2"));
  EXPECT_TRUE(names(FsdpScript("--megatron-fsdp-version 2", "0.19.0").errors(), "has no --megatron-fsdp-version"));
  EXPECT_EQ(FsdpScript("--megatron-fsdp-version 1").setup().framework->id(), "megatron-fsdp");
}

// What MixedPrecisionPolicy says of reductions the second version does not read: recorded at 0.6.1.
TEST(megatron_lm_with_the_second_version, is_affected_where_sums_in_fp32_are_asked_for) {
  const report::AuditReport report = FsdpScript("--megatron-fsdp-version 2 --megatron-fsdp-main-grads-dtype fp32").report();
  EXPECT_EQ(report.outcome, AuditOutcome::affected);
  ASSERT_FALSE(report.findings.empty());
  ASSERT_TRUE(report.findings.front().known);
  EXPECT_EQ(report.findings.front().known->entry, "mfsdp-13");
}

TEST(arguments_of_the_second_version, are_read_as_fully_shard_takes_them) {
  Arguments given(R"({"mixed_precision_policy": {"main_grads_dtype": "torch.float32"}, "use_symm_mem": true, "placements": {"dp_axes": [0]}, "mixed_precison": 1})", "manual",
                  "0.6.1");
  given.request().files.framework = "megatron-fsdp-v2";
  const audit::Setup setup = given.setup();
  EXPECT_EQ(setup.config, (json{{"mixed_precision", {{"main_grads_dtype", "fp32"}}}}));
  EXPECT_EQ(setup.ignored, (std::vector<std::string>{"/use_symm_mem"}));
  EXPECT_TRUE(names(setup.not_modelled, "/placements"));
  EXPECT_TRUE(names(setup.unknown, "/mixed_precison"));
}

TEST(megatron_lm_with_megatron_fsdp, reduces_a_window_of_one_micro_batch) {
  FsdpScript one("--data-parallel-sharding-strategy no_shard --overlap-grad-reduce --global-batch-size 2");
  EXPECT_EQ(one.setup().setting.micro_batches, 1u);
  EXPECT_EQ(one.report().outcome, AuditOutcome::not_affected);
}

}  // namespace
}  // namespace gradledger::testing
