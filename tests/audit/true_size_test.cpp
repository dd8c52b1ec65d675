// Set-ups with a user's model at its true size.
#include "sim/base/limits.h"
#include "sim/scenario/model_shapes/published.h"
#include "tests/audit/support.h"

namespace gradledger::testing {
namespace {

audit::Request with_model(const std::string& file, const std::string& loop, const std::string& model) {
  audit::Request out = request_of(file, loop);
  out.model = model;
  return out;
}

const report::AuditFilled* filled(const audit::Setup& setup, const std::string& pointer) {
  const auto at = std::find_if(setup.filled.begin(), setup.filled.end(), [&](const report::AuditFilled& f) { return f.pointer == pointer; });
  return at == setup.filled.end() ? nullptr : &*at;
}

// Two layers of one tensor each; larger than what is made smaller otherwise.
constexpr const char* two_layers = "embed 40 50\nh.0.w 2000\nh.1.w 2000\nhead 50 40\n";

TEST(a_published_model, is_audited_with_its_shapes_and_the_buckets_of_the_file) {
  const audit::Setup setup = setup_of(with_model("zero2_offload.json", "deepspeed", "gpt2"));
  EXPECT_EQ(setup.parameters, (json{{"model", "gpt2"}}));
  EXPECT_EQ(setup.config["zero_optimization"]["reduce_bucket_size"], 2e8) << "as the file has it";
  EXPECT_EQ(setup.model, "gpt2 (openai-community/gpt2): 148 parameters, 124439808 elements at their true sizes, 12 layers");
  const auto scenario = audit::scenario_of(setup, audit::variant_of(setup));
  ASSERT_TRUE(scenario) << scenario.error().text();
  EXPECT_EQ(scenario->numel(), 124'439'808u);
}

TEST(a_published_model, leaves_buckets_to_the_framework_where_no_file_names_them) {
  EXPECT_FALSE(setup_of(with_model("zero1_bf16.json", "deepspeed", "gpt2")).config["zero_optimization"].contains("reduce_bucket_size"));
  EXPECT_FALSE(setup_of(with_model("accelerate_multi_gpu.yaml", "accelerate", "gpt2")).config.contains("bucket_cap_mb"));
  EXPECT_FALSE(setup_of(with_model("megatron_pretrain.sh", "megatron", "gpt2")).config["ddp"].contains("bucket_size"));
}

TEST(a_published_model, says_its_hidden_size_to_what_is_auto) {
  const audit::Setup known = setup_of(with_model("zero3_auto.json", "hf-trainer", "gpt2")), unknown = setup_of(request_of("zero3_auto.json", "hf-trainer"));
  EXPECT_EQ(known.config["zero_optimization"]["reduce_bucket_size"], 768 * 768);
  const report::AuditFilled *by_size = filled(known, "/zero_optimization/reduce_bucket_size"), *by_default = filled(unknown, "/zero_optimization/reduce_bucket_size");
  ASSERT_TRUE(by_size && by_default);
  EXPECT_EQ(by_size->why, "the square of the model's hidden size, as transformers fills it in");
  EXPECT_EQ(by_default->value, "500000000");
}

TEST(a_published_model, is_wrapped_layer_by_layer) {
  for (const char* file : {"accelerate_fsdp1.yaml", "accelerate_fsdp2.yaml"}) {
    SCOPED_TRACE(file);
    const audit::Setup setup = setup_of(with_model(file, "accelerate", "gpt2"));
    EXPECT_EQ(setup.config["units"], json(layers_of(shapes_of(*published_model("gpt2")))));
    ASSERT_TRUE(filled(setup, "/units"));
    EXPECT_EQ(filled(setup, "/units")->value, "12 layers");
    const auto scenario = audit::scenario_of(setup, audit::variant_of(setup));
    EXPECT_TRUE(scenario) << scenario.error().text();
  }
}

TEST(a_published_model, is_cut_in_rows_by_fully_shard) {
  audit::Request request = with_model("accelerate_fsdp2.yaml", "accelerate", "gpt2");
  request.ranks = 4;
  EXPECT_EQ(setup_of(request).config["rows"], (json{{"transformer.wte.weight", 50257}})) << "all others have as many rows for each rank";
}

TEST(a_file_of_shapes, is_audited_at_its_true_size) {
  const TemporaryFolder folder;
  const std::string file = folder.write("model.shapes", two_layers).string();
  const audit::Setup setup = setup_of(with_model("accelerate_fsdp2.yaml", "accelerate", file));
  ASSERT_EQ(setup.parameters.size(), 4u);
  EXPECT_EQ(setup.parameters[0], (json{{"name", "embed"}, {"numel", 2000}}));
  EXPECT_EQ(setup.config["units"], json::parse(R"([["h.0.w"], ["h.1.w"]])"));
  EXPECT_EQ(setup.model, file + ": 4 parameters, 8000 elements at their true sizes, 2 layers");
}

TEST(a_file_of_shapes, has_the_verdict_of_the_stand_in) {
  const TemporaryFolder folder;
  audit::Request request = with_model("zero2_offload.json", "deepspeed", folder.write("model.shapes", two_layers).string());
  request.ranks = 2;
  request.releases["deepspeed"] = "0.18.6";
  EXPECT_EQ(answered(request).text(), "loses 6 of 8");
  request.releases["deepspeed"] = "0.19.0";
  EXPECT_TRUE(answered(request).clean());
}

// Its elements fit no machine as numbers: releases are compared by symbolic runs.
TEST(a_published_model, has_the_known_defect_of_the_stand_in) {
  const auto known = [](const std::string& model) {
    audit::Request request = with_model("zero2_offload.json", "deepspeed", model);
    request.ranks = 2;
    request.releases["deepspeed"] = "0.18.6";
    const report::AuditReport report = audited(request);
    return report.findings.empty() || !report.findings.front().known ? std::string("unknown") : report.findings.front().known->entry;
  };
  EXPECT_EQ(known("llama-7b"), "catalogue-2");
  EXPECT_EQ(known("embed=40x50,head=50x40"), "catalogue-2");
}

TEST(a_model, that_cannot_be_had_is_refused_with_what_could_be) {
  const auto error = [](const std::string& model) {
    const std::vector<std::string> errors = errors_of(with_model("zero2_offload.json", "deepspeed", model));
    EXPECT_EQ(errors.size(), 1u);
    return errors.empty() ? "" : errors.front();
  };
  EXPECT_EQ(error("gpt2-xll"), "--model: is \"gpt2-xll\"; expected a file of shapes, NAME=SIZExSIZE,..., or one of " + published_model_names() + "; did you mean \"gpt2-xl\"?");
  const TemporaryFolder folder;
  const std::string file = folder.write("m.shapes", "a 3\na 3\n").string();
  EXPECT_EQ(error(file), "--model: " + file + ": names two tensors \"a\"; expected each name once");
  folder.write("m.shapes", "a " + std::to_string(limits::model_numel_max + 1));
  EXPECT_EQ(error(file), "--model: " + file + " has " + std::to_string(limits::model_numel_max + 1) + " elements; expected at most " + std::to_string(limits::model_numel_max));
}

}  // namespace
}  // namespace gradledger::testing
