// Loops of torchtune, torchtitan, verl, NeMo and open-instruct by release, and how epochs end. drivers/python/tests/test_audit_recipes.py has what real ones weigh.
#include "loops/loops.h"
#include "tests/audit/support.h"

namespace gradledger::testing {
namespace {

using loops::AggMode;
using loops::LoopSetting;

loops::Expansion expanded(const std::string& loop, LoopSetting setting, const std::string& release = "") {
  const loops::Loop* found = loops::named(loop);
  EXPECT_TRUE(found) << loop;
  if (!found) return {};
  for (const loops::LoopPackage& package : found->packages) setting.packages.try_emplace(std::string(package.name), package.newest);
  if (!release.empty()) setting.packages[std::string(found->packages.front().name)] = release;
  EXPECT_EQ(found->refuses ? found->refuses(setting) : "", "") << loop;
  return found->expand(setting);
}

LoopSetting sharded(std::uint32_t micro_batches = 2) {
  LoopSetting out;
  out.framework = "fsdp2";
  out.micro_batches = micro_batches;
  out.ranks = 2;
  return out;
}

std::string window_of(const loops::Expansion& expansion) { return expansion.script[0]["repeat"]["of"].dump(); }

TEST(a_loop, of_torchtune_changed_what_gradients_are_scaled_by) {
  const std::string end = R"(},{"step":{}},{"zero_grad":"engine"}])", sums = R"([{"backward":{"weight":"tokens"}},{"backward":{"weight":"tokens"}},{"scale_gradients":{"by":)";
  EXPECT_EQ(window_of(expanded("torchtune", sharded())), sums + R"("world/tokens_of_window"})" + end);
  EXPECT_EQ(window_of(expanded("torchtune", sharded(), "0.5.0")), sums + R"("1/tokens_of_window"})" + end);
  EXPECT_EQ(window_of(expanded("torchtune", sharded(), "0.3.1")), R"([{"backward":{"weight":"1/2"}},{"backward":{"weight":"1/2"})" + end);
}

TEST(a_loop, of_torchtitan_takes_the_mean_itself_since_0_3) {
  const loops::Expansion now = expanded("torchtitan", sharded()), before = expanded("torchtitan", sharded(), "0.2.1");
  const std::string clears = R"([{"zero_grad":"engine"},)";
  EXPECT_EQ(window_of(now), clears + R"({"backward":{"weight":"tokens/tokens_of_window"}},{"backward":{"weight":"tokens/tokens_of_window"}},{"step":{}}])");
  EXPECT_EQ(now.config["gradient_divide_factor"], 1.0);
  EXPECT_EQ(window_of(before), clears + R"({"backward":{"weight":"1/2"}},{"backward":{"weight":"1/2"}},{"step":{}}])");
  EXPECT_TRUE(before.config.empty());
}

std::string weight_of_verl(AggMode mode, bool dynamic, const std::string& release) {
  LoopSetting setting = sharded(4);
  setting.verl = {mode, dynamic};
  return expanded("verl", setting, release).script[0]["repeat"]["of"][0]["backward"]["weight"].dump();
}

TEST(a_loop, of_verl_divides_by_the_mini_batch_since_0_9) {
  for (const AggMode mode : {AggMode::token_mean, AggMode::seq_mean_token_sum, AggMode::seq_mean_token_mean, AggMode::seq_mean_token_sum_norm})
    EXPECT_EQ(weight_of_verl(mode, true, "0.9.1"), R"("world*tokens/tokens_of_window")");
  EXPECT_EQ(weight_of_verl(AggMode::token_mean, false, "0.7.0"), R"("1/4")");
  EXPECT_EQ(weight_of_verl(AggMode::token_mean, true, "0.7.0"), R"([["4/16","2/16","8/16","2/16"],["2/16","8/16","2/16","4/16"]])");
  EXPECT_EQ(weight_of_verl(AggMode::seq_mean_token_mean, true, "0.7.0"), R"("tokens/tokens_of_rank")");
  EXPECT_EQ(weight_of_verl(AggMode::seq_mean_token_sum_norm, true, "0.7.0"), R"("tokens*tokens/tokens_of_rank")");
}

struct Asked {
  const char *loop, *release;
  void (*change)(audit::Request&);
  const char* verdict;
};

TEST(an_audit, of_a_recipe_finds_what_its_release_divides_wrongly) {
  const auto nothing = [](audit::Request&) {};
  const auto uneven = [](audit::Request& r) { r.tokens = "uneven"; };
  const auto dynamic = [](audit::Request& r) {
    r.tokens = "uneven";
    r.dynamic_micro_batches = true;
  };
  const auto sequences = [](audit::Request& r) {
    r.loss_agg_mode = "seq-mean-token-mean";
    r.dynamic_micro_batches = true;
  };
  const auto sums = [](audit::Request& r) { r.loss_agg_mode = "seq-mean-token-sum-norm"; };
  const auto summed = [](audit::Request& r) {
    r.tokens = "uneven";
    r.loss = "sum";
  };
  for (const Asked& asked : {Asked{"torchtune", "0.6.1", uneven, "clean"},
                             {"torchtune", "0.5.0", nothing, "x 1/2"},
                             {"torchtune", "0.3.1", nothing, "clean"},
                             {"torchtune", "0.3.1", uneven, "wrong scale"},
                             {"torchtitan", "0.3.0", uneven, "clean"},
                             {"torchtitan", "0.2.1", uneven, "wrong scale"},
                             {"nemo-rl", "2026.8", uneven, "clean"},
                             {"verl", "0.9.1", dynamic, "clean"},
                             {"verl", "0.7.0", dynamic, "wrong scale"},
                             {"verl", "0.7.0", sequences, "clean"},
                             {"verl", "0.7.0", sums, "x 4"},
                             {"verl", "0.9.1", sums, "clean"},
                             {"open-instruct-finetune", "2025.8", uneven, "clean"},
                             {"open-instruct-finetune", "2025.8", summed, "x 31/8"}}) {
    audit::Request request = request_of("accelerate_fsdp2.yaml", asked.loop);
    request.ranks = 2;
    request.micro_batches = 4;
    request.releases[std::string(loops::named(asked.loop)->packages.front().name)] = asked.release;
    asked.change(request);
    EXPECT_EQ(answered(request).text(), asked.verdict) << asked.loop << " " << asked.release;
  }
}

// Recorded at 4.45.2, 4.51.3, 4.54.1 and 5.23.0, and of accelerate 1.15.0 and Lightning 2.6.6 (tests/conformance/loops_data).
TEST(a_loop, ends_an_epoch_as_its_package_does) {
  const auto windows = [](const std::string& loop, const std::string& release, const auto& change) {
    LoopSetting setting = sharded(4);
    setting.framework = "ddp";
    setting.windows = 1;
    setting.last_window = 3;
    setting.loss = loops::Loss::mean;
    change(setting);
    std::vector<std::uint32_t> out{0};
    const auto count = [&](const json& event, const auto& self) -> void {
      for (std::uint32_t i = 0; event.contains("repeat") && i < event["repeat"]["times"]; ++i)
        for (const json& inner : event["repeat"]["of"]) self(inner, self);
      if (event.contains("no_sync"))
        for (const json& inner : event["no_sync"]) self(inner, self);
      if (event.contains("backward")) out.back() += event["backward"].value("micro_batches", 1u);
      if (event.contains("step")) out.push_back(0);
    };
    for (const json& event : expanded(loop, setting, release).script) count(event, count);
    return out;
  };
  using Windows = std::vector<std::uint32_t>;
  const auto nothing = [](LoopSetting&) {};
  EXPECT_EQ(windows("accelerate", "1.15.0", nothing), (Windows{4, 3, 4, 0}));
  EXPECT_EQ(windows("accelerate", "1.15.0", [](LoopSetting& s) { s.sync_with_dataloader = false; }), (Windows{4, 4, 3}));
  EXPECT_EQ(windows("accelerate", "1.15.0", [](LoopSetting& s) { s.leaves_early = true; }), (Windows{4, 4, 3, 0}));
  EXPECT_EQ(windows("hf-trainer", "4.46.0", nothing), (Windows{4, 4, 3}));
  EXPECT_EQ(windows("hf-trainer", "4.51.3", nothing), (Windows{4, 3, 4, 0}));
  EXPECT_EQ(windows("lightning-manual", "2.6.6", nothing), (Windows{4, 7, 0}));
  EXPECT_EQ(windows("torchtune", "0.6.1", [](LoopSetting& s) { s.framework = "fsdp2"; }), (Windows{4, 7, 0}));
}

TEST(a_loop, refuses_what_its_package_does) {
  const auto answer = [](const char* loop, const char* file, const auto& change) {
    audit::Request request = request_of(file, loop);
    change(request);
    return answered(request).refused;
  };
  EXPECT_NE(
      answer("torchtune", "accelerate_fsdp2.yaml", [](audit::Request& r) { r.optimizer_in_backward = true; }).find("Gradient accumulation is not supported with optimizer in bwd"),
      std::string::npos);
  EXPECT_NE(answer("verl", "accelerate_fsdp2.yaml", [](audit::Request& r) { r.loss_agg_mode = "token-sum"; }).find("divides by nothing"), std::string::npos);
  EXPECT_NE(answer("hf-trainer", "accelerate_multi_gpu.yaml",
                   [](audit::Request& r) {
                     r.loss = "function";
                     r.releases["transformers"] = "4.45.2";
                   })
                .find("unexpected keyword argument 'compute_loss_func'"),
            std::string::npos);
}

TEST(an_option, of_one_loop_is_refused_to_others) {
  const auto errors = [](const auto& change) {
    audit::Request request = request_of("accelerate_fsdp2.yaml", "no-sync");
    change(request);
    const std::vector<std::string> all = errors_of(request);
    return all.size() == 1 ? all.front() : std::to_string(all.size()) + " errors";
  };
  EXPECT_EQ(errors([](audit::Request& r) { r.loss_agg_mode = "token-mean"; }), "--loss-agg-mode: is for the loop verl; the loop here is no-sync");
  EXPECT_EQ(errors([](audit::Request& r) { r.dynamic_micro_batches = true; }), "--dynamic-micro-batches: is for the loop verl; the loop here is no-sync");
  EXPECT_EQ(errors([](audit::Request& r) { r.optimizer_in_backward = true; }), "--optimizer-in-backward: is for the loop torchtune; the loop here is no-sync");
  EXPECT_EQ(errors([](audit::Request& r) { r.undivided = true; }), "--undivided: is for the loop lightning-manual; the loop here is no-sync");
  EXPECT_EQ(errors([](audit::Request& r) {
              r.loop = "accelerate";
              r.epoch_end = "left";
            }),
            "--epoch-end: says how an epoch ends in a shorter window, and there is none; expected --last-window");
}

TEST(an_audit, takes_average_tokens_across_devices_from_the_arguments_of_a_trainer) {
  LoopSetting setting = sharded();
  setting.framework = "ddp";
  EXPECT_NE(window_of(expanded("hf-trainer", setting)).find("world*tokens/tokens_of_window"), std::string::npos);
  setting.average_tokens = false;
  EXPECT_NE(window_of(expanded("hf-trainer", setting)).find("tokens/tokens_of_rank"), std::string::npos);
  setting.average_tokens = true;
  setting.loss = loops::Loss::function;
  EXPECT_NE(window_of(expanded("hf-trainer", setting, "4.47.1")).find(R"("tokens/tokens_of_window")"), std::string::npos) << "without the ranks";
}

}  // namespace
}  // namespace gradledger::testing
