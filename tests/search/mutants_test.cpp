// Every fault of the catalogue is found, in every engine that has what it breaks, and named by a class that fits; the wrapper around an
// engine is seen in nothing.
#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "search/draw/generator.h"
#include "search/mutants/hunt.h"
#include "search/draw/variants.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/load.h"
#include "tests/support/scenarios.h"

namespace gradledger::search {
namespace {

constexpr std::uint64_t seed = 1;
constexpr std::uint32_t cases_max = 24;

// What it breaks is nothing at all.
const Mutant& harmless() {
  static const Mutant mutant{"harmless", "nothing goes wrong", {ref::FindingClass::wrong_scale}, {"zero0", "zero2", "zero3-offload"}, {}};
  return mutant;
}

std::string names_of(const std::vector<ref::FindingClass>& classes) {
  std::string out;
  for (const ref::FindingClass c : classes) out += std::string(name_of(c)) + " ";
  return out.empty() ? "nothing" : out;
}

bool has(const std::vector<ref::FindingClass>& classes, ref::FindingClass finding) { return std::find(classes.begin(), classes.end(), finding) != classes.end(); }

// ---- the catalogue ------------------------------------------------------------------------------------------------------------------

TEST(mutants, are_many_and_each_has_a_name_of_its_own) {
  std::set<std::string_view> names, sentences;
  const std::regex kebab("[a-z0-9]+(-[a-z0-9]+)*");
  for (const Mutant& mutant : mutants()) {
    EXPECT_TRUE(names.insert(mutant.name).second) << mutant.name;
    EXPECT_TRUE(sentences.insert(mutant.what).second) << mutant.name << ": " << mutant.what;
    EXPECT_TRUE(std::regex_match(mutant.name.begin(), mutant.name.end(), kebab)) << mutant.name;
    EXPECT_FALSE(mutant.classes.empty()) << mutant.name;
    EXPECT_EQ(std::set<ref::FindingClass>(mutant.classes.begin(), mutant.classes.end()).size(), mutant.classes.size()) << mutant.name;
    const Fault& fault = mutant.fault;
    EXPECT_EQ(!!fault.edit + !!fault.tell + !!fault.believe + !!fault.value, 1) << mutant.name << " is one fault";
  }
  EXPECT_GE(names.size(), 60u);
}

TEST(mutants, name_variants_that_there_are_and_leave_none_out) {
  std::map<std::string_view, std::uint32_t> faults;
  for (const Mutant& mutant : mutants()) {
    EXPECT_FALSE(mutant.variants.empty()) << mutant.name;
    for (const std::string_view variant : mutant.variants) {
      EXPECT_TRUE(variant_named(variant, "").ok()) << mutant.name << ": " << variant;
      ++faults[variant];
    }
    EXPECT_EQ(std::set<std::string_view>(mutant.variants.begin(), mutant.variants.end()).size(), mutant.variants.size()) << mutant.name;
  }
  for (const Variant& variant : variants()) EXPECT_GE(faults[variant.name], 60u) << variant.name;
  for (const Framework* framework : frameworks())
    if (framework->search_space() && framework != &default_framework())
      for (const Variant& variant : framework->search_space()->variants()) EXPECT_GE(faults[variant.name], 30u) << variant.name;
}

TEST(mutants, are_found_by_name_and_a_wrong_name_by_the_nearest) {
  EXPECT_EQ((*mutant_named("sum-skipped", "--mutants"))->name, "sum-skipped");
  const auto unknown = mutant_named("sum-skiped", "--mutants");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().text().find("sum-skipped"), std::string::npos) << unknown.error().text();
}

// ---- the hunt -----------------------------------------------------------------------------------------------------------------------

class of_a_variant : public ::testing::TestWithParam<std::string_view> {};

TEST_P(of_a_variant, every_mutant_is_found_with_a_class_that_fits) {
  for (const Mutant& mutant : mutants()) {
    if (std::find(mutant.variants.begin(), mutant.variants.end(), GetParam()) == mutant.variants.end()) continue;
    const Hunt found = hunt(mutant, GetParam(), seed, cases_max);
    EXPECT_TRUE(found.found) << mutant.name << " survives " << found.cases << " cases of " << GetParam() << "; reported in the last: " << names_of(found.reported);
    EXPECT_EQ(found.found, found.scenario.has_value());
  }
}

INSTANTIATE_TEST_SUITE_P(mutants, of_a_variant, ::testing::ValuesIn([] {
                           std::vector<std::string_view> names;
                           for (const Framework* framework : frameworks())
                             if (framework->search_space())
                               for (const auto& part : {framework->search_space()->variants(), framework->search_space()->further_variants()})
                                 for (const Variant& variant : part) names.push_back(variant.name);
                           return names;
                         }()),
                         [](const auto& info) { return std::regex_replace(std::string(info.param), std::regex("-"), "_"); });

// Not one of them is out of a mutant's reach.
TEST(mutants, every_class_of_findings_is_what_some_mutant_is_reported_as) {
  for (const ref::FindingClassInfo& info : ref::finding_classes()) {
    const bool reported = std::any_of(mutants().begin(), mutants().end(), [&](const Mutant& mutant) {
      if (!has(mutant.classes, info.finding)) return false;
      return std::any_of(mutant.variants.begin(), mutant.variants.end(), [&](std::string_view variant) {
        const Hunt found = hunt(mutant, variant, seed, cases_max);
        return found.found && has(found.reported, info.finding);
      });
    });
    EXPECT_TRUE(reported) << info.name;
  }
}

TEST(hunt, does_not_find_a_fault_that_does_nothing) {
  const Hunt nothing = hunt(harmless(), seed, cases_max);
  EXPECT_FALSE(nothing.found);
  EXPECT_EQ(nothing.cases, cases_max);
  EXPECT_EQ(nothing.scenario, std::nullopt);
}

// A release that overwrites what a window accumulated, whoever watches.
TEST(hunt, does_not_count_what_is_wrong_without_the_fault) {
  Mutant mutant = harmless();
  mutant.classes = {ref::FindingClass::discarded_gradient};
  mutant.variants = {"zero2"};
  mutant.require = [](Scenario& s) {
    s.engine.as_of.base = "0.18.9";
    deepspeed_config(s).gradient_accumulation_steps = 1;
    deepspeed_config(s).managed_gradient_accumulation = true;
    s.contract = {};
    s.script = testing::without_boundary_calls(4);
  };
  const Hunt known = hunt(mutant, seed, 2);
  EXPECT_FALSE(known.found);
  EXPECT_EQ(known.cases, 2u);
  EXPECT_TRUE(has(known.reported, ref::FindingClass::discarded_gradient)) << names_of(known.reported);
}

TEST(hunt, demands_a_class_that_fits) {
  Mutant mutant = **mutant_named("sum-skipped", "");
  mutant.classes = {ref::FindingClass::stream_race};
  const Hunt misnamed = hunt(mutant, seed, 2);
  EXPECT_FALSE(misnamed.found);
  EXPECT_FALSE(misnamed.reported.empty());
}

TEST(hunt, is_the_same_every_time) {
  const Mutant& mutant = **mutant_named("weights-not-gathered", "");
  const Hunt one = hunt(mutant, seed, cases_max), again = hunt(mutant, seed, cases_max);
  EXPECT_EQ(one.cases, again.cases);
  EXPECT_EQ(one.scenario, again.scenario);
  EXPECT_EQ(one.reported, again.reported);
}

}  // namespace
}  // namespace gradledger::search
