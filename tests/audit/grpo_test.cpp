// TRL's GRPOTrainer: what each loss_type divides by, where micro-batches have different lengths.
#include <algorithm>
#include <fstream>

#include "sim/scenario/parse.h"
#include "tests/audit/support.h"

namespace gradledger::testing {
namespace {

using loops::GrpoLoss;
using loops::LoopSetting;

loops::Expansion expanded(LoopSetting setting) {
  const loops::Loop* loop = loops::named("grpo");
  for (const loops::LoopPackage& package : loop->packages) setting.packages[std::string(package.name)] = package.newest;
  return loop->expand(setting);
}

LoopSetting on_ddp(GrpoLoss loss) {
  LoopSetting out;
  out.framework = "ddp";
  out.micro_batches = 2;
  out.ranks = 2;
  out.grpo.loss = loss;
  return out;
}

// Each advised change was replayed and is clean.
bool is_advised(const report::AuditReport& report, const std::string& says) {
  return std::any_of(report.advice.begin(), report.advice.end(), [&](const report::AuditAdvice& a) { return a.clean && a.says == says; });
}

audit::Request grpo_request(const std::string& loss, const std::string& file = "accelerate_multi_gpu.yaml", const std::string& tokens = "equal") {
  audit::Request out = request_of(file, "grpo");
  out.grpo_loss = loss;
  out.micro_batches = 4;
  out.tokens = tokens;
  return out;
}

TEST(a_loop, of_grpo_divides_by_micro_batches_or_by_tokens) {
  const std::string behind = R"({"step":{}},{"zero_grad":"engine"}])";
  for (const GrpoLoss loss : {GrpoLoss::grpo, GrpoLoss::bnpo, GrpoLoss::dr_grpo})
    EXPECT_EQ(expanded(on_ddp(loss)).script[0]["repeat"]["of"].dump(), R"([{"no_sync":[{"backward":{"weight":"1/2"}}]},{"backward":{"weight":"1/2"}},)" + behind);
  EXPECT_EQ(expanded(on_ddp(GrpoLoss::dapo)).script[0]["repeat"]["of"].dump(),
            R"([{"no_sync":[{"backward":{"weight":"world*tokens/tokens_of_window"}}]},{"backward":{"weight":"world*tokens/tokens_of_window"}},)" + behind);
  EXPECT_EQ(expanded(on_ddp(GrpoLoss::grpo)).contract["divide_by"], "window");
  EXPECT_EQ(expanded(on_ddp(GrpoLoss::bnpo)).contract["divide_by"], "tokens");
}

// Four slices of 4, 2, 8, 2, 6, 3, 5 and 1 tokens: 31 in a generation, of which a window's 2 micro-batches are meant to have a half.
TEST(a_loop, of_grpo_divides_by_the_tokens_of_a_generation) {
  LoopSetting setting = on_ddp(GrpoLoss::dapo);
  setting.uneven_tokens = true;
  setting.windows = 2;
  setting.grpo.steps_per_generation = 4;
  const loops::Expansion wide = expanded(setting);
  EXPECT_EQ(wide.tokens["table"].dump(), "[[[4,8],[2,2]],[[6,5],[3,1]]]");
  EXPECT_EQ(wide.script[0].dump(), R"({"no_sync":[{"backward":{"weight":["4*world*4/31/2","2*world*4/31/2"]}}]})");
  setting.grpo.steps_per_generation = 1;
  EXPECT_EQ(expanded(setting).script[0].dump(), R"({"no_sync":[{"backward":{"weight":["4*world*1/6/2","2*world*1/6/2"]}}]})") << "each micro-batch is a generation";
}

TEST(a_loop, of_grpo_goes_through_the_slices_of_a_generation_again) {
  LoopSetting setting = on_ddp(GrpoLoss::dapo);
  setting.uneven_tokens = true;
  setting.windows = 3;
  setting.grpo.num_iterations = 2;
  EXPECT_EQ(expanded(setting).tokens["table"].dump(), "[[[4,8],[2,2]],[[4,8],[2,2]],[[6,5],[3,1]]]");
}

TEST(an_audit, of_grpo_tells_which_loss_types_weigh_by_length) {
  for (const auto& [loss, verdict] : std::vector<std::pair<std::string, std::string>>{{"grpo", "clean"}, {"bnpo", "wrong scale"}, {"dr_grpo", "clean"}, {"dapo", "clean"}}) {
    audit::Request request = grpo_request(loss);
    EXPECT_EQ(answered(request).text(), "clean") << loss << ": all of one length";
    request.tokens = "uneven";
    EXPECT_EQ(answered(request).text(), verdict) << loss;
  }
}

TEST(an_audit, of_grpo_tells_that_generations_of_other_sizes_weigh_windows_alike) {
  audit::Request request = grpo_request("dapo");
  request.tokens = "uneven";
  for (const std::uint32_t slices : {2u, 8u}) {
    request.steps_per_generation = slices;
    EXPECT_EQ(answered(request).text(), "wrong scale") << slices;
  }
  EXPECT_TRUE(is_advised(audited(request), "generate one window at a time: steps_per_generation 4"));
  EXPECT_TRUE(is_advised(audited(grpo_request("bnpo", "accelerate_multi_gpu.yaml", "uneven")), "divide by the tokens of all: loss_type dapo"));
}

TEST(an_audit, of_grpo_runs_on_every_wrapper) {
  for (const char* file : {"accelerate_fsdp1.yaml", "accelerate_fsdp2.yaml"}) EXPECT_EQ(answered(grpo_request("dapo", file)).text(), "clean") << file;
  EXPECT_EQ(answered(request_of("zero1_bf16.json", "grpo", "0.19.8")).refused, "");
}

TEST(a_trainers_arguments, of_grpo_say_the_loss_and_the_size_of_a_generation) {
  const TemporaryFolder folder;
  audit::Request request = request_of("", "grpo");
  request.files.arguments = folder.path() / "a.json";
  request.ranks = 2;
  std::ofstream(folder.path() / "a.json")
      << R"({"loss_type": "bnpo", "gradient_accumulation_steps": 4, "per_device_train_batch_size": 2, "generation_batch_size": 32, "num_iterations": 3})";
  const audit::Setup setup = setup_of(request);
  EXPECT_EQ(setup.setting.grpo.loss, GrpoLoss::bnpo);
  EXPECT_EQ(setup.setting.grpo.steps_per_generation, 8u);
  EXPECT_EQ(setup.setting.grpo.num_iterations, 3u);
  std::ofstream(folder.path() / "a.json") << R"({"loss_type": "dapoo", "generation_batch_size": 33})";
  const std::vector<std::string> errors = errors_of(request);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0], "loss_type: is \"dapoo\", of which there is no model here; expected one of grpo, bnpo, dr_grpo, dapo; did you mean \"dapo\"?");
}

}  // namespace
}  // namespace gradledger::testing
