// Every scenario of the corpus reports what it expects, and would fail if it expected anything else.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "verbs/expectations.h"
#include "verbs/session.h"

namespace gradledger::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path corpus_folder = fs::path(GRADLEDGER_SOURCE_DIR) / "scenarios";

std::vector<fs::path> scenario_files() {
  std::set<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(corpus_folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".json") && !name.ends_with(".schema.json") && !name.ends_with(".gradients.json") && !name.ends_with(".tokens.json")) files.insert(entry.path());
  }
  return {files.begin(), files.end()};
}

json document(const fs::path& path) { return json::parse(std::ifstream(path)); }

// A test for each file, named after folder and file.
class corpus : public ::testing::TestWithParam<fs::path> {};

std::string test_name(const ::testing::TestParamInfo<fs::path>& info) {
  std::string name = info.param.lexically_relative(corpus_folder).replace_extension().string();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

// Each way to expect something else that the scenario allows for.
std::vector<std::pair<std::string, Expect>> altered(const Expect& expect) {
  std::vector<std::pair<std::string, Expect>> out;
  const auto alter = [&](const std::string& how, auto&& change) {
    out.emplace_back(how, expect);
    change(out.back().second);
  };
  if (expect.accounting_only) {
    // Nothing is judged: what is counted is altered below.
  } else if (expect.findings.empty()) alter("a finding more", [](Expect& e) { e.findings.push_back({"discarded-gradient", {}, {}, {}, {}}); });
  else alter("no finding", [](Expect& e) { e.findings.clear(); });
  for (std::size_t i = 0; i < expect.findings.size(); ++i) {
    const ExpectedFinding& finding = expect.findings[i];
    alter("another class", [i](Expect& e) { e.findings[i].finding = e.findings[i].finding == "wrong-scale" ? "misplaced-shard" : "wrong-scale"; });
    if (finding.contributions) alter("no contribution", [i](Expect& e) { e.findings[i].contributions = *Predicate::parse("micro_batch > 4000000000", ""); });
    if (finding.own) alter("another own weight", [i](Expect& e) { *e.findings[i].own += 0.25; });
    if (finding.peer) alter("another peer weight", [i](Expect& e) { *e.findings[i].peer += 0.25; });
    if (finding.lost_weight) alter("another lost weight", [i](Expect& e) { *e.findings[i].lost_weight += 0.25; });
  }
  for (const auto& [purpose, counts] : expect.collectives) {
    if (counts.per_step) alter("a collective more", [name = purpose](Expect& e) { ++*e.collectives[name].per_step; });
    if (counts.at_most_per_step && *counts.at_most_per_step > 0) alter("fewer collectives", [name = purpose](Expect& e) { e.collectives[name].at_most_per_step = 0; });
    if (counts.bytes_per_step) alter("a byte more", [name = purpose](Expect& e) { ++*e.collectives[name].bytes_per_step; });
    if (counts.at_most_bytes_per_step.value_or(0) > 0) alter("fewer bytes", [name = purpose](Expect& e) { e.collectives[name].at_most_bytes_per_step = 0; });
  }
  for (std::size_t i = 0; i < expect.memory.size(); ++i) {
    if (expect.memory[i].resident) alter("a resident byte more", [i](Expect& e) { ++*e.memory[i].resident; });
    if (expect.memory[i].at_most_resident.value_or(0) > 0) alter("no resident byte", [i](Expect& e) { e.memory[i].at_most_resident = 0; });
    if (expect.memory[i].peak) alter("a byte more at the peak", [i](Expect& e) { ++*e.memory[i].peak; });
    if (expect.memory[i].at_most_peak.value_or(0) > 0) alter("no byte at the peak", [i](Expect& e) { e.memory[i].at_most_peak = 0; });
  }
  return out;
}

TEST_P(corpus, reports_what_it_expects_and_would_fail_if_it_expected_anything_else) {
  const verbs::Options options;
  const auto loaded = verbs::load(GetParam(), options, verbs::Use::gate);
  ASSERT_TRUE(loaded) << loaded.error().text();
  const Expect expect = (*loaded)->scenario.expect;
  std::optional<verbs::Held> held;
  if (!expect.accounting_only) {
    held = verbs::run_for_expectations(**loaded, options);
    EXPECT_TRUE(held->verdict.ledger.elements > 0 || held->verdict.facts.stopped()) << "nothing was compared, and nothing stopped the run";
  }
  const auto unmet = [&] { return held ? verbs::unmet(**loaded, *held) : verbs::unmet_in_dry_run(**loaded, options); };
  for (const report::Problem& problem : unmet()) ADD_FAILURE() << problem.text;

  const auto others = altered(expect);
  EXPECT_FALSE(others.empty());
  for (const auto& [how, other] : others) {
    (*loaded)->scenario.expect = other;
    EXPECT_FALSE(unmet().empty()) << "expected " << how;
  }
}

// Those that name another one.
std::vector<fs::path> compared_files() {
  std::vector<fs::path> out;
  for (const fs::path& file : scenario_files())
    if (document(file).value("/expect/comparison"_json_pointer, json()).is_object()) out.push_back(file);
  return out;
}

class corpus_comparison : public ::testing::TestWithParam<fs::path> {};

TEST_P(corpus_comparison, holds) {
  const verbs::Options options;
  const auto loaded = verbs::load(GetParam(), options, verbs::Use::gate);
  ASSERT_TRUE(loaded) << loaded.error().text();
  const auto& comparison = (*loaded)->scenario.expect.comparison;
  ASSERT_TRUE(comparison);
  const auto other = verbs::load(GetParam().parent_path() / comparison->with, options);
  ASSERT_TRUE(other) << other.error().text();
  const auto agree = verbs::applied_agree(**loaded, **other, options);
  ASSERT_TRUE(agree) << agree.error().text();
  EXPECT_EQ(*agree, comparison->agree);
}

INSTANTIATE_TEST_SUITE_P(all, corpus, ::testing::ValuesIn(scenario_files()), test_name);
INSTANTIATE_TEST_SUITE_P(all, corpus_comparison, ::testing::ValuesIn(compared_files()), test_name);

// ---- the corpus as a whole ----------------------------------------------------------------------------------------------------------

// Pointers of the values in which two documents differ, in what makes a run.
std::set<std::string> differences(json a, json b) {
  for (json* d : {&a, &b}) {
    if (json& as_of = (*d)["engine"]["as_of"]; as_of.is_string()) as_of = {{"base", as_of}};  // the long form of the same
    for (const char* key : {"name", "note", "source", "covers", "twin_of", "expect"}) d->erase(key);
  }
  std::set<std::string> out;
  const json flat_a = a.flatten(), flat_b = b.flatten();
  for (const auto& [pointer, value] : flat_a.items())
    if (!flat_b.contains(pointer) || flat_b[pointer] != value) out.insert(pointer);
  for (const auto& [pointer, value] : flat_b.items())
    if (!flat_a.contains(pointer)) out.insert(pointer);
  return out;
}

// A script is one thing, however many of its events differ.
std::string thing(const std::string& pointer) { return pointer.starts_with("/script/") ? "/script" : pointer; }

TEST(corpus_as_a_whole, has_twins_that_differ_in_one_thing_only) {
  std::size_t twins = 0;
  for (const fs::path& file : scenario_files()) {
    const json one = document(file);
    if (!one.contains("twin_of")) continue;
    ++twins;
    std::set<std::string> things;
    for (const std::string& pointer : differences(one, document(file.parent_path() / one["twin_of"].get<std::string>()))) things.insert(thing(pointer));
    EXPECT_EQ(things.size(), 1u) << file << " and " << one["twin_of"] << " differ in " << json(things);
  }
  EXPECT_GT(twins, 0u);
}

TEST(corpus_as_a_whole, has_for_each_defect_scenarios_with_findings_and_clean_ones_and_comparisons) {
  std::map<std::string, std::pair<std::size_t, std::size_t>> with_findings_and_clean;
  std::set<std::string> names;
  std::size_t comparisons = 0;
  for (const fs::path& file : scenario_files()) {
    const json one = document(file);
    EXPECT_TRUE(names.insert(one["name"].get<std::string>()).second) << one["name"] << " is the name of two scenarios";
    if (one.contains("expect") && one["expect"].value("accounting_only", false)) continue;  // finds nothing, whatever is wrong
    auto& [defective, clean] = with_findings_and_clean[file.parent_path().filename().string()];
    ++(one.contains("expect") && one["expect"].contains("findings") && !one["expect"]["findings"].empty() ? defective : clean);
    comparisons += one.contains("expect") && one["expect"].contains("comparison");
  }
  ASSERT_GE(with_findings_and_clean.size(), 6u);
  for (const auto& [folder, counts] : with_findings_and_clean) {
    EXPECT_TRUE(counts.first > 0 || folder == "values") << folder;  // those are controls
    EXPECT_GT(counts.second, 0u) << folder;
  }
  EXPECT_GT(comparisons, 0u);
}

// A condition asks for its contributions in every completed window.
TEST(corpus_as_a_whole, is_gated_on_every_window_that_a_condition_selects) {
  const verbs::Options options;
  const auto loaded = verbs::load(corpus_folder / "open-instruct-1498" / "stage-2-discards-varying-windows.json", options);
  ASSERT_TRUE(loaded) << loaded.error().text();
  const ref::Verdict verdict = verbs::judge(**loaded, options, nullptr);
  ASSERT_TRUE(verbs::unmet(**loaded, verdict).empty());
  ASSERT_GT((*loaded)->timeline.steps, 1u);
  std::uint32_t steps_with_findings = 0;
  for (std::uint32_t step = 0; step < (*loaded)->timeline.steps; ++step) {
    ref::Verdict without = verdict;
    std::erase_if(without.findings, [&](const ref::Finding& f) { return f.step == step; });
    if (without.findings.size() == verdict.findings.size()) continue;
    ++steps_with_findings;
    EXPECT_FALSE(verbs::unmet(**loaded, without).empty()) << "without the findings of step " << step;
  }
  EXPECT_GT(steps_with_findings, 1u);
}

}  // namespace
}  // namespace gradledger::testing
