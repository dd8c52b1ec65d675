// Answers: what is lost, since when, what helps; and that each was replayed.
#include <algorithm>
#include <fstream>

#include "audit/sweep.h"
#include "tests/audit/support.h"

namespace gradledger::testing {
namespace {

using report::AuditOutcome;

audit::Request eight(const std::string& loop, const std::string& deepspeed) {
  audit::Request out = request_of("zero2_auto_offload.json", loop, deepspeed);
  out.ranks = 4;
  out.micro_batches = 8;
  return out;
}

std::string advice_of(const report::AuditReport& report, const std::string& part) {
  for (const report::AuditAdvice& a : report.advice)
    if (a.says.find(part) != a.says.npos && a.says.find(", and set ") == a.says.npos) return a.clean ? "clean" : a.verdict;
  return "not tried";
}

bool says(const std::vector<std::string>& sentences, const std::string& part) {
  return std::any_of(sentences.begin(), sentences.end(), [&](const std::string& s) { return s.find(part) != s.npos; });
}

TEST(an_audit, of_stage_2_with_offload_names_what_is_lost_since_when_and_what_helps) {
  const report::AuditReport report = audited(eight("deepspeed", "0.18.6"));
  EXPECT_EQ(report.outcome, AuditOutcome::affected);
  EXPECT_EQ(report.verdict, "loses 6 of 8");
  ASSERT_EQ(report.effects.size(), 1u);
  EXPECT_EQ(report.effects[0].sentence, "micro-batches 1-6 (6 of 8) of every rank, in every window: never reaches the update");
  EXPECT_EQ(report.since, "0.16.0 or before");
  EXPECT_EQ(report.fixed, "0.19.0");
  EXPECT_EQ(advice_of(report, "upgrade DeepSpeed to 0.19.0"), "clean");
  EXPECT_EQ(advice_of(report, "use ZeRO stage 1"), "clean");
  EXPECT_EQ(advice_of(report, "use ZeRO stage 3"), "clean");
  EXPECT_EQ(advice_of(report, "leave out zero_optimization.offload_optimizer"), "clean");
  EXPECT_TRUE(says(report.meaning, "An update sees 2 of 8 micro-batches"));
  EXPECT_TRUE(says(report.meaning, "it does not make up for the missing data"));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].finding, ref::FindingClass::offload_loss);
  EXPECT_TRUE(report.findings[0].known.has_value());
}

TEST(an_audit, of_the_release_that_fixed_it_is_clean_and_says_where_it_was_not) {
  const report::AuditReport report = audited(eight("deepspeed", "0.19.0"));
  EXPECT_EQ(report.outcome, AuditOutcome::not_affected);
  EXPECT_EQ(report.since, "");
  EXPECT_TRUE(report.advice.empty());
  ASSERT_GE(report.releases.size(), 2u);
  EXPECT_EQ(report.releases[0].releases, "0.16.0 to 0.18.9");
  EXPECT_EQ(report.releases[0].verdict, "loses 6 of 8");
  EXPECT_TRUE(report.releases[1].current);
}

// DeepSpeed#7965 lies beside the loss: what helps against one of the two is not enough.
TEST(an_audit, of_two_defects_at_once_advises_two_changes_together) {
  audit::Request request = eight("deepspeed", "0.18.6");
  request.files.config = audit_file("zero2_overlap_offload.json");
  const report::AuditReport report = audited(request);
  EXPECT_EQ(report.verdict, "loses 6 of 8, race");
  EXPECT_EQ(advice_of(report, "leave out zero_optimization.offload_optimizer"), "race");
  EXPECT_EQ(advice_of(report, "set zero_optimization.overlap_comm to false"), "loses 6 of 8");
  EXPECT_TRUE(std::any_of(report.advice.begin(), report.advice.end(), [](const report::AuditAdvice& a) {
    return a.clean && a.says.find("offload_optimizer, and set zero_optimization.overlap_comm to false") != a.says.npos;
  }));
}

TEST(an_audit, of_a_manual_loop_advises_orders_of_calls_that_were_replayed) {
  audit::Request request = eight("manual", "0.18.6");
  const report::AuditReport report = audited(request);
  EXPECT_EQ(report.verdict, "loses 7 of 8") << "with gradient_accumulation_steps 1 the host accumulator is not used";
  EXPECT_EQ(advice_of(report, "write the loop as deepspeed"), "loses 6 of 8");
  EXPECT_EQ(advice_of(report, "write the loop as coalesce"), "raises") << "0.18.6 has no such call";
}

TEST(an_audit, of_a_constant_factor_tells_sgd_from_adam) {
  audit::Request request = request_of("zero1_bf16.json", "lightning", "0.19.8");
  request.leave_out = {"/gradient_clipping"};
  request.optimizer = "adam";
  EXPECT_TRUE(says(audited(request).meaning, "its updates stay the same but for eps") || says(audited(request).meaning, "clips"));
  request = request_of("fp16_dynamic.json", "lightning", "0.18.9");
  EXPECT_TRUE(says(audited(request).meaning, "a learning rate 1/4 times")) << "0.18.9 does not clip by default";
}

TEST(an_audit, of_what_is_not_modelled_is_never_clean) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "ds.json";
  std::ofstream(path) << R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 3, "zero_quantized_gradients": true}})";
  audit::Request request = request_of("", "deepspeed", "0.19.8");
  request.files.config = path;
  const report::AuditReport report = audited(request);
  EXPECT_EQ(report.outcome, AuditOutcome::not_judged);
  EXPECT_TRUE(says(report.not_judged, "/zero_optimization/zero_quantized_gradients"));
  request.leave_out = {"/zero_optimization/zero_quantized_gradients"};
  EXPECT_EQ(audited(request).outcome, AuditOutcome::not_affected);
}

TEST(an_audit, of_a_step_that_never_updates_is_no_clean_one) {
  audit::Request request = eight("no-boundary", "0.19.8");
  request.files.config = audit_file("zero2_offload.json");
  const report::AuditReport report = audited(request);
  EXPECT_EQ(report.outcome, AuditOutcome::affected);
  EXPECT_EQ(report.verdict, "no update");
}

TEST(a_sweep, over_releases_replays_each_and_judges_each_behaviour_once) {
  const report::AuditReport report = audited(eight("deepspeed", "0.18.6"), audit::Sweep::releases);
  ASSERT_EQ(report.matrices.size(), 1u);
  EXPECT_EQ(report.matrices[0].rows.size(), report.releases.empty() ? 0u : 27u);
  EXPECT_GT(report.runs_alike, report.judged_runs) << "most changes between releases are of no concern here";
}

// The cache must not take one behaviour for another: every release, judged by itself.
TEST(a_sweep, comes_to_what_each_release_comes_to_alone) {
  const audit::Setup setup = setup_of(eight("manual", "0.18.6"));
  const verbs::Options options;
  audit::Replayer together(setup, options);
  for (const audit::AtRelease& at : audit::at_releases(setup, together)) {
    audit::Replayer alone(setup, options);
    audit::Variant variant = audit::variant_of(setup);
    variant.as_of = at.first;
    const audit::Answer answer = alone.answer(variant);
    EXPECT_EQ(answer.text(), at.answer.text()) << at.first;
    EXPECT_EQ(answer.verdict->findings.size(), at.answer.verdict->findings.size()) << at.first;
  }
}

TEST(a_sweep, over_stages_has_a_column_for_each) {
  const report::AuditReport report = audited(eight("deepspeed", "0.18.6"), audit::Sweep::stages);
  ASSERT_EQ(report.matrices.size(), 1u);
  const report::AuditMatrix& matrix = report.matrices[0];
  ASSERT_EQ(matrix.columns, (std::vector<std::string>{"stage 0", "stage 1", "stage 1 offload", "stage 2", "stage 2 offload", "stage 3", "stage 3 offload"}));
  ASSERT_EQ(matrix.rows.size(), 1u);
  for (std::size_t c = 0; c < matrix.columns.size(); ++c)
    EXPECT_EQ(matrix.rows[0].cells[c], matrix.columns[c] == "stage 2 offload" ? "loses 6 of 8" : "clean") << matrix.columns[c];
}

TEST(an_audit, of_private_gradients_says_that_ranks_drift) {
  audit::Request request = request_of("zero1_bf16.json", "deepspeed", "0.18.9");
  request.ranks = 2;
  const TemporaryFolder folder;
  const std::string path = folder.path() / "ds.json";
  std::ofstream(path) << R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "bf16": {"enabled": true},
                             "data_types": {"grad_accum_dtype": "float32"}, "zero_optimization": {"stage": 1}})";
  request.files.config = path;
  const report::AuditReport report = audited(request);
  EXPECT_EQ(report.outcome, AuditOutcome::affected);
  EXPECT_TRUE(std::any_of(report.effects.begin(), report.effects.end(), [](const report::AuditEffect& e) { return e.kind == "private"; })) << report.verdict;
  EXPECT_TRUE(says(report.meaning, "drift apart"));
}

}  // namespace
}  // namespace gradledger::testing
