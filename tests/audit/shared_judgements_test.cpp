// States of a framework that share a judgement, held to what each comes to when it is judged anew.
#include <fstream>
#include <set>

#include "audit/sweep.h"
#include "tests/audit/support.h"

namespace gradledger::testing {
namespace {

std::string told(const audit::Answer& answer) {
  if (!answer.refused.empty()) return "refused: " + answer.refused;
  std::string out = answer.text() + "\n";
  const audit::Effects& e = answer.effects;
  for (const report::AuditEffect& effect : e.list)
    out += effect.kind + ", " + effect.sentence + ": " + std::to_string(effect.micro_batches) + " of " + std::to_string(effect.of) + "\n";
  for (const bool flag : {e.lost, e.partly, e.scaled, e.stale, e.kept_private, e.races, e.no_update, e.stops, e.other, answer.judged(), answer.affected(), answer.clean()})
    out += flag ? "y" : "n";
  out += e.factor ? " factor " + std::to_string(*e.factor) : "";
  for (const ref::Finding& f : answer.verdict->findings)
    out += "\n" + std::string(name_of(f.finding)) + " " + std::to_string(f.step) + " " + std::to_string(f.event) + " " + std::to_string(f.rank) + " " + f.sentence;
  for (const std::string& what : answer.verdict->left_out) out += "\nnot judged: " + what;
  const ref::Coverage& c = answer.verdict->coverage;
  out += "\n" + c.nothing + " " + std::to_string(c.judged) + " " + std::to_string(c.windows_judged) + " of " + std::to_string(c.windows_closed);
  return out;
}

struct Compared {
  std::set<std::string> verdicts;  // that differ
  std::uint32_t states = 0, judged = 0, alike = 0;
};

Compared compare_releases(const audit::Setup& setup, const verbs::Options& options = {}) {
  Compared out;
  if (!setup.framework) return out;
  audit::Replayer sharing(setup, options);
  for (const audit::AtRelease& at : audit::at_releases(setup, sharing)) {
    audit::Variant variant = audit::variant_of(setup);
    variant.as_of = at.first;
    audit::Replayer alone(setup, options);
    EXPECT_EQ(told(at.answer), told(alone.answer(variant))) << at.first;
    out.verdicts.insert(at.answer.text());
    ++out.states;
  }
  out.judged = sharing.judged();
  out.alike = sharing.alike();
  return out;
}

audit::Setup written(const std::string& config, const std::string& model = "", std::uint32_t ranks = 2, const std::string& loop = "deepspeed") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "ds.json") << config;
  audit::Request request = request_of("", loop, "0.19.8");
  request.files.config = folder.path() / "ds.json";
  request.ranks = ranks;
  request.model = model;
  return setup_of(request);
}

std::string config_of(std::uint32_t stage, const std::string& in_zero = "", const std::string& more = R"(, "bf16": {"enabled": true})") {
  return R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8, "gradient_clipping": 0.0, "zero_optimization": {"stage": )" + std::to_string(stage) + in_zero +
         "}" + more + "}";
}

constexpr const char* offloaded = R"(, "offload_optimizer": {"device": "cpu"})";
constexpr const char* overlapped = R"(, "overlap_comm": true)";
constexpr const char* fp16 = R"(, "fp16": {"enabled": true})";
constexpr const char* fp32_sums = R"(, "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"})";

// No numbers of gpt2 fit.
const verbs::Options too_small = [] {
  verbs::Options out;
  out.memory_limit = std::uint64_t{256} << 20;
  return out;
}();

// Some releases lose micro-batches, and some none: who shared too much would tell the wrong one.
TEST(a_judgement_that_is_shared, tells_of_stage_2_with_offload_what_each_release_does) {
  const Compared on_numbers = compare_releases(written(config_of(2, offloaded)));
  EXPECT_EQ(on_numbers.verdicts, (std::set<std::string>{"clean", "loses 6 of 8"}));
  EXPECT_GT(on_numbers.alike, on_numbers.judged);
  const Compared of_true_size = compare_releases(written(config_of(2, offloaded), "gpt2"), too_small);
  EXPECT_EQ(of_true_size.verdicts, on_numbers.verdicts);
  EXPECT_GT(of_true_size.alike, of_true_size.judged) << "no hash tells runs of weights apart: it is told by what was read";
}

TEST(a_judgement_that_is_shared, is_that_of_every_release_at_every_stage) {
  for (const std::uint32_t stage : {0u, 1u, 2u, 3u})
    for (const char* data : {R"(, "bf16": {"enabled": true})", fp16, fp32_sums}) {
      SCOPED_TRACE(config_of(stage, "", data));
      const Compared at = compare_releases(written(config_of(stage, "", data)));
      EXPECT_GT(at.alike, 0u);
    }
}

TEST(a_judgement_that_is_shared, is_that_of_every_release_with_overlap_and_offload) {
  for (const std::uint32_t stage : {1u, 2u, 3u})
    for (const std::string& zero : {std::string(overlapped), std::string(offloaded), std::string(offloaded) + overlapped}) {
      SCOPED_TRACE(config_of(stage, zero));
      compare_releases(written(config_of(stage, zero)));
    }
}

TEST(a_judgement_that_is_shared, is_that_of_every_release_where_numbers_do_not_fit) {
  for (const std::uint32_t stage : {0u, 1u, 2u, 3u})
    for (const std::string& zero : {std::string(), std::string(overlapped), std::string(offloaded)}) {
      if (stage < 2 && !zero.empty()) continue;
      SCOPED_TRACE(config_of(stage, zero));
      const Compared at = compare_releases(written(config_of(stage, zero), "gpt2"), too_small);
      EXPECT_LE(at.judged * 2, at.states) << "most switches are of no concern here";
    }
  compare_releases(written(config_of(1, "", fp32_sums), "gpt2"), too_small);
}

// The default of gradient_clipping came with a release: it is in no switch, and the contract has it.
TEST(a_judgement_that_is_shared, knows_what_a_release_documents) {
  compare_releases(written(R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 1}, "bf16": {"enabled": true}})"));
  compare_releases(written(R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 0}, "fp16": {"enabled": true}})"));
}

TEST(a_judgement_that_is_shared, is_that_of_every_release_with_loops_that_differ) {
  for (const char* loop : {"manual", "no-sync", "coalesce", "no-boundary"}) {
    SCOPED_TRACE(loop);
    compare_releases(written(config_of(2, offloaded), "", 2, loop));
    compare_releases(written(config_of(1), "", 2, loop));
  }
}

TEST(a_judgement_that_is_shared, is_that_of_every_release_of_other_frameworks) {
  for (const char* loop : {"manual", "megatron"}) {
    SCOPED_TRACE(loop);
    audit::Request request = request_of("megatron_pretrain.sh", loop);
    request.releases["megatron-core"] = "0.15.0";
    const Compared at = compare_releases(setup_of(request));
    EXPECT_GT(at.states, 5u);
    EXPECT_GT(at.alike, 0u);
  }
  for (const char* file : {"accelerate_fsdp2.yaml", "accelerate_fsdp1.yaml", "accelerate_multi_gpu.yaml"}) {
    SCOPED_TRACE(file);
    compare_releases(setup_of(request_of(file, "accelerate")));
  }
  audit::Request sharded = request_of("accelerate_fsdp2.yaml", "no-sync");
  EXPECT_GE(compare_releases(setup_of(sharded)).states, 2u);
}

TEST(a_judgement_that_is_shared, is_that_of_every_release_of_megatron_fsdp) {
  const TemporaryFolder folder;
  std::set<std::string> verdicts;
  for (const std::string strategy : {"no_shard", "optim", "optim_grads", "optim_grads_params"})
    for (const char* overlaps : {"true", "false"}) {
      SCOPED_TRACE(strategy + ", overlap " + overlaps);
      std::ofstream(folder.path() / "options.json") << R"({"zero_dp_strategy": ")" << strategy << R"(", "overlap_grad_reduce": )" << overlaps << "}";
      audit::Request request = request_of("", "manual");
      request.files.config = folder.path() / "options.json";
      request.files.framework = "megatron-fsdp";
      request.ranks = 2;
      request.releases["megatron-fsdp"] = "0.6.1";
      const Compared at = compare_releases(setup_of(request));
      verdicts.insert(at.verdicts.begin(), at.verdicts.end());
    }
  EXPECT_GE(verdicts.size(), 2u) << "else there was nothing to mix up";
}

TEST(a_judgement, is_made_once_for_the_set_up_itself_and_for_its_release_where_numbers_do_not_fit) {
  const audit::Setup setup = written(config_of(3, offloaded), "gpt2");
  audit::Replayer replayer(setup, too_small);
  const audit::Answer whole = replayer.answer(audit::variant_of(setup), false), brief = replayer.answer(audit::variant_of(setup));
  EXPECT_EQ(replayer.judged(), 1u);
  EXPECT_EQ(replayer.alike(), 1u);
  EXPECT_EQ(told(whole), told(brief));
}

TEST(a_judgement, that_is_kept_has_no_rows_of_a_ledger) {
  const audit::Setup setup = setup_of(request_of("zero2_offload.json", "deepspeed", "0.18.6"));
  const verbs::Options options;
  audit::Replayer replayer(setup, options);
  const audit::Answer whole = replayer.answer(audit::variant_of(setup), false), brief = replayer.answer(audit::variant_of(setup));
  ASSERT_TRUE(whole.affected() && brief.affected());
  EXPECT_TRUE(whole.verdict->applied.empty() && brief.verdict->applied.empty());
  EXPECT_FALSE(whole.verdict->findings.front().contributions.empty()) << "which the report shows";
  EXPECT_TRUE(brief.verdict->findings.front().contributions.empty());
  EXPECT_FALSE(brief.effects.list.empty());
}

}  // namespace
}  // namespace gradledger::testing
