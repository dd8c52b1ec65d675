// The norm of BF16_Optimizer on a rank whose only gradient is that of a parameter without elements: what runs of DeepSpeed 0.19.8 on a pipeline did.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/on_weights.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;

struct ErrorsByRank final : TraceSink {
  void engine_error(const EngineErrorRecord& e) override { of[e.rank].push_back(e.message); }

  std::map<std::uint32_t, std::vector<std::string>> of;
};

// Two ranks a stage. The second rank of the first stage uses the empty parameter alone.
ErrorsByRank errors_at(const char* as_of) {
  const json document = {
      {"name", "s"},
      {"world_size", 4},
      {"parameters", {{{"name", "w"}, {"numel", 16}, {"used_by", "rank == 0"}}, {{"name", "empty"}, {"numel", 0}}, {{"name", "head"}, {"numel", 4}, {"pipeline_stage", 1}}}},
      {"model_dtype", "bf16"},
      {"engine",
       {{"framework", "deepspeed"},
        {"as_of", as_of},
        {"config", {{"bf16", {{"enabled", true}}}, {"zero_optimization", json::object()}}},
        {"optimizer", {{"type", "SGD"}, {"lr", 0.1}}},
        {"pipeline_stages", 2}}},
      {"script", json::array({json{{"backward", json::object()}}, json{{"step", json::object()}}})},
      {"after_error", "go_on"}};
  ErrorsByRank out;
  run_on_weights(document, out);
  return out;
}

TEST(bf16_optimizer, has_no_norm_of_a_parameter_without_elements_where_groups_leave_it_out) {
  ErrorsByRank out = errors_at("0.19.8");
  EXPECT_EQ(out.of[0], std::vector<std::string>{});
  EXPECT_EQ(out.of[1], std::vector<std::string>{"stack expects a non-empty TensorList"});
  EXPECT_EQ(errors_at("0.19.7").of[1], std::vector<std::string>{}) << "until then its norm is 0";
}

}  // namespace
}  // namespace gradledger::testing
