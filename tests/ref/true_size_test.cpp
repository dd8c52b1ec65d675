// Runs of true size, of which there are no numbers: a script with parameters of thousands of elements, and the same script with all sizes
// 65,536 times as large, which puts the edges of parameters, partitions, padding and buckets behind 2^31 and 2^32. The books must be the same.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ref/oracle.h"
#include "search/draw/generator.h"
#include "sim/base/limits.h"
#include "sim/frameworks/framework.h"
#include "sim/judgement_bytes.h"
#include "sim/load.h"
#include "sim/producers/producers.h"
#include "sim/scenario/parse.h"
#include "tests/support/sanitized.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;

// A multiple of what frameworks pad to and of the sizes of drawn worlds, so that shares have no padding in the one that they lack in the other.
constexpr std::uint64_t small_scale = 128 * 3 * 5 * 7, times = 1u << 16;

// What a configuration counts in elements, or in bytes of them.
void scale_sizes(json& config, std::uint64_t by) {
  if (!config.is_object()) return;
  for (auto& [key, value] : config.items()) {
    if (key == "reduce_bucket_size" || key == "bucket_size" || key == "sub_group_size") value = value.get<std::uint64_t>() * by;
    else if (key == "bucket_cap_mb") value = value.get<double>() * static_cast<double>(by);
    else if (key == "rows")
      for (auto& [parameter, rows] : value.items()) rows = rows.get<std::uint64_t>() * by;
    else scale_sizes(value, by);
  }
}

// Frameworks' defaults are numbers of elements that do not grow with the model.
void name_default_sizes(json& engine) {
  constexpr std::uint64_t elements = 1000;
  json& config = engine["config"];
  if (engine["framework"] == "deepspeed" && config.contains("zero_optimization"))
    for (const char* key : {"reduce_bucket_size", "sub_group_size"})
      if (!config["zero_optimization"].contains(key)) config["zero_optimization"][key] = elements;
  if (engine["framework"] == "megatron") config["ddp"]["pad_buckets_for_high_nccl_busbw"] = false;  // to 2^16 elements, whatever the size
  if (engine["framework"] == "megatron" && !config["ddp"].contains("bucket_size")) config["ddp"]["bucket_size"] = elements;
}

// Precondition: its gradients are drawn by the oracle.
Scenario scaled(const Scenario& scenario, std::uint64_t by) {
  json document = json::parse(to_json(scenario).dump());
  name_default_sizes(document["engine"]);
  for (json& parameter : document["parameters"]) parameter["numel"] = parameter["numel"].get<std::uint64_t>() * by;
  scale_sizes(document["engine"]["config"], by);
  const auto read = read_scenario(document.dump(), ".");
  EXPECT_TRUE(read) << read.error().text() << ": " << document.dump();
  return read.value();
}

ref::Verdict symbolic(const Scenario& scenario, ref::OracleOptions options = {}) {
  const Timeline timeline = make_timeline(scenario).value();
  options.executor = ref::Executor::symbolic;
  options.full_ledger = true;
  return ref::judge(scenario, timeline, *make_producer(scenario, timeline), options);
}

std::string elements(const std::vector<ref::ElementRange>& ranges, std::uint64_t scale) {
  std::string out;
  for (const ref::ElementRange& r : ranges)
    out += fmt::format(" {}[{},{})", r.parameter, static_cast<double>(r.begin) / static_cast<double>(scale), static_cast<double>(r.end) / static_cast<double>(scale));
  return out;
}

// Everything that a verdict says of elements and weights, in sizes of the script.
std::vector<std::string> books(const ref::Verdict& verdict, std::uint64_t scale) {
  std::vector<std::string> out;
  for (const ref::Finding& f : verdict.findings) out.push_back(fmt::format("{} in step {} on rank {}", name_of(f.finding), f.step, f.rank));
  for (const ref::AppliedRow& applied : verdict.applied)
    out.push_back(fmt::format("step {} rank {} {}{}: {} for {}", applied.step, applied.rank, applied.buffer, elements(applied.row.elements, scale),
                              fmt::join(applied.row.observed, " "), fmt::join(applied.row.expected, " ")));
  return out;
}

class true_size : public ::testing::TestWithParam<std::string> {};

TEST_P(true_size, has_the_books_of_a_small_one) {
  const Framework* framework = framework_named(GetParam());
  ASSERT_NE(framework, nullptr);
  search::Profile profile;
  for (const Variant& variant : framework->search_space()->variants()) profile.variants.push_back(&variant);
  std::uint32_t compared = 0, wrong = 0, beyond_32_bits = 0;
  for (std::uint64_t number = 0; number < (sanitized ? 60 : 400); ++number) {
    const search::Drawn drawn = search::draw_case(profile, 11, number);
    if (drawn.scenario.gradients.kind == GradientKind::values || drawn.scenario.gradients.kind == GradientKind::mlp) continue;
    const Scenario small = scaled(drawn.scenario, small_scale), large = scaled(drawn.scenario, small_scale * times);
    const ref::Verdict of_small = symbolic(small), of_large = symbolic(large);
    EXPECT_EQ(books(of_small, small_scale), books(of_large, small_scale * times)) << GetParam() << ", case " << number << ": " << to_json(small).dump();
    ++compared;
    wrong += !of_large.findings.empty();
    beyond_32_bits += large.numel() > 1ull << 32;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(compared, sanitized ? 30u : 200u);
  EXPECT_GT(wrong, compared / 10);
  EXPECT_GT(beyond_32_bits, compared / 2);
}

Scenario of_ranks(std::uint32_t world, std::uint32_t micro_batches, std::uint32_t accumulation_steps) {
  json document = {
      {"name", "s"}, {"world_size", world}, {"parameters", {{{"name", "a"}, {"numel", 3'500'000'000}}, {{"name", "b"}, {"numel", 3'500'000'001}}}}, {"model_dtype", "bf16"}};
  document["engine"] = {{"framework", "deepspeed"}, {"optimizer", {{"type", "SGD"}, {"lr", 0.001}}}};
  document["engine"]["config"] = {{"gradient_accumulation_steps", accumulation_steps}, {"bf16", {{"enabled", true}}}, {"zero_optimization", {{"stage", 2}}}};
  document["script"] = {{{"backward", {{"micro_batches", micro_batches}}}}, {{"step", json::object()}}};
  return read_scenario(document.dump(), ".").value();
}

TEST(a_symbolic_run_alone, says_what_it_does_not_judge) {
  const ref::Verdict verdict = symbolic(of_ranks(4, 1, 1));
  EXPECT_TRUE(verdict.clean());
  EXPECT_EQ(verdict.value_passes, 0u);
  EXPECT_EQ(verdict.values.elements, 0u);
  ASSERT_EQ(verdict.left_out.size(), 1u);
  EXPECT_NE(verdict.left_out.front().find("rounding, clipping, what overflows"), std::string::npos);
}

// Shares are filled to multiples of the ranks: of a small model in a large world the padding is what there is to hold, on every rank.
Scenario of_one_window(std::uint32_t world) {
  json document = {{"name", "s"}, {"world_size", world}, {"parameters", {{{"name", "a"}, {"numel", 5}}, {{"name", "b"}, {"numel", 5}}}}, {"model_dtype", "bf16"}};
  document["engine"] = {{"framework", "deepspeed"}, {"optimizer", {{"type", "SGD"}, {"lr", 0.001}}}};
  document["engine"]["config"] = {{"gradient_accumulation_steps", 1}, {"bf16", {{"enabled", true}}}, {"zero_optimization", {{"stage", 2}}}};
  document["script"] = {{{"backward", json::object()}}, {{"step", json::object()}}};
  return read_scenario(document.dump(), ".").value();
}

TEST(a_world, of_as_many_ranks_as_there_may_be_is_judged_without_numbers) {
  const Scenario scenario = of_one_window(sanitized ? 4096 : limits::world_size_max);
  EXPECT_GT(judgement_bytes(of_one_window(limits::world_size_max)), limits::memory_bytes_default) << "its padding alone";
  const ref::Verdict verdict = symbolic(scenario);
  EXPECT_TRUE(verdict.clean());
  EXPECT_EQ(verdict.coverage.windows_judged, 1u);
  std::set<std::uint32_t> owners;
  for (const ref::AppliedRow& row : verdict.applied) owners.insert(row.rank);
  EXPECT_EQ(owners.size(), 5u) << "two elements on each of five ranks, and padding on all others";
}

TEST(a_ledger, of_more_weights_than_its_limit_names_the_first_ranks_and_counts_the_others) {
  constexpr std::uint32_t ranks = 16, micro_batches = 8;  // the step takes the last of them
  ref::OracleOptions options;
  options.ledger_cells_max = ranks * micro_batches * 5;
  const ref::Verdict verdict = symbolic(of_ranks(ranks, micro_batches, 1), options);
  ASSERT_FALSE(verdict.findings.empty());
  EXPECT_EQ(verdict.findings.front().rank, 0u);
  EXPECT_GT(verdict.not_taken_apart, 0u);
  std::set<std::uint32_t> named;
  for (const ref::Finding& f : verdict.findings) named.insert(f.rank);
  for (const ref::AppliedRow& row : verdict.applied) EXPECT_TRUE(named.contains(row.rank)) << row.rank;
  EXPECT_LT(named.size(), ranks);
  EXPECT_EQ(verdict.unbalanced.size() % ranks, 0u) << "that they are wrong is known of all";
}

INSTANTIATE_TEST_SUITE_P(by_framework, true_size, ::testing::Values("deepspeed", "ddp", "fsdp1", "fsdp2", "megatron"), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gradledger::testing
