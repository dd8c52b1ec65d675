// DeepSpeed configurations with AutoTP: what becomes of their layout, in an audit and in a scenario.
#include <fstream>

#include "sim/load.h"
#include "tests/audit/support.h"

namespace gradledger::testing {
namespace {

class AutotpFile {
 public:
  explicit AutotpFile(const json& size, std::uint32_t ranks = 4, std::uint32_t stage = 1) {
    json config = json::parse(R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "gradient_clipping": 0.5, "bf16": {"enabled": true}})");
    config["zero_optimization"]["stage"] = stage;
    config["optimizer"] = {{"type", "SGD"}};
    config["tensor_parallel"] = {{"autotp_size", size}, {"preset_model", "llama"}};
    std::ofstream(folder_.path() / "ds_config.json") << config;
    request_ = request_of("", "deepspeed", "0.19.8");
    request_.files.config = folder_.path() / "ds_config.json";
    request_.ranks = ranks;
  }

  audit::Request& request() { return request_; }

 private:
  TemporaryFolder folder_;
  audit::Request request_;
};

json sharded(const audit::Setup& setup) {
  json out = json::array();
  for (const json& p : setup.parameters)
    if (p.contains("sharded_over")) out.push_back(p["name"]);
  return out;
}

TEST(a_configuration_with_autotp, has_its_layout_and_parts) {
  AutotpFile file(2);
  const audit::Setup setup = setup_of(file.request());
  EXPECT_EQ(setup.layout, (json{{"tp", 2}}));
  EXPECT_EQ(sharded(setup), (json{"layer0.weight", "layer1.weight", "layer2.weight"}));
  EXPECT_EQ(setup.config["tensor_parallel"], (json{{"autotp_size", 2}}));
  EXPECT_EQ(audited(file.request()).findings.size(), 0u);
}

TEST(a_configuration_with_autotp, cuts_a_model_by_the_names_of_its_layers) {
  AutotpFile file(2);
  file.request().model = "layers.0.self_attn.q_proj.weight=64x64,layers.0.q_norm.weight=64,layers.0.mlp.down_proj.weight=5x5";
  const audit::Setup setup = setup_of(file.request());
  EXPECT_EQ(sharded(setup), (json{"layers.0.self_attn.q_proj.weight", "layers.0.mlp.down_proj.weight"}));
  EXPECT_EQ(setup.parameters[2]["numel"].get<std::uint64_t>() % 2, 0u) << "parts are alike";
}

TEST(a_configuration_with_autotp, shows_the_norm_that_lacks_parts_at_stage_0) {
  AutotpFile file(2, 4, 0);
  const report::AuditReport report = audited(file.request());
  ASSERT_EQ(report.findings.size(), 1u);
  ASSERT_TRUE(report.findings.front().known);
  EXPECT_EQ(report.findings.front().known->entry, "live-36");
}

TEST(a_configuration_with_autotp, without_a_layout_says_why) {
  AutotpFile uneven(3);
  EXPECT_NE(errors_of(uneven.request()).at(0).find("/tensor_parallel/autotp_size: is 3, which does not divide the 4 ranks; expected a divisor"), std::string::npos);
  AutotpFile alone(4);
  EXPECT_NE(audited(alone.request()).not_judged.at(0).find("/tensor_parallel/autotp_size: 4 of 4 ranks"), std::string::npos);
  AutotpFile none(1);
  EXPECT_TRUE(setup_of(none.request()).layout.is_null());
}

TEST(a_scenario_with_autotp, has_the_layout_that_its_configuration_asks_for) {
  json document = json::parse(R"({"name": "cut", "world_size": 4, "parameters": [{"name": "w", "numel": 8, "sharded_over": "tp"}], "layout": {"tp": 2}, "model_dtype": "fp32",
    "engine": {"framework": "deepspeed", "as_of": "0.19.8", "config": {"tensor_parallel": {"autotp_size": 2}}, "optimizer": {"type": "SGD"}}, "script": [{"backward": {}}, {"step": {}}]})");
  const auto refused = [&] {
    const auto read = read_scenario(document.dump(), {});
    return read ? std::string() : read.error().text();
  };
  EXPECT_EQ(refused(), "");
  document["engine"]["config"]["tensor_parallel"]["autotp_size"] = 4;
  EXPECT_TRUE(refused().find("/engine/config/tensor_parallel/autotp_size: is 4, and tp of /layout is 2") != std::string::npos) << refused();
  document["engine"]["config"]["tensor_parallel"]["autotp_size"] = 2;
  document["parameters"].push_back({{"name", "norm"}, {"numel", 4}, {"summed_over", "tp"}});
  EXPECT_TRUE(refused().find("/parameters/1/summed_over: is not modelled with AutoTP") != std::string::npos) << refused();
}

}  // namespace
}  // namespace gradledger::testing
