// What searches ask of a framework: the answers agree with its contract and its engines, and a framework that answers nothing is left alone.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <set>

#include "search/draw/variants.h"
#include "search/mutants/mutant.h"
#include "sim/frameworks/history.h"
#include "sim/frameworks/search_space.h"
#include "sim/load.h"
#include "sim/scenario/parse.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

using namespace gradledger::search;

Scenario world_of(const Variant& variant) {
  Scenario out = base_scenario(2, {8, 8}, Dtype::float32);
  out.engine = {};
  variant.apply(out);
  return out;
}

Contract contract_of(const Scenario& s) { return framework_of(s).contract(s).value(); }

TEST(variants, are_named_once_over_all_frameworks_and_come_to_their_own_name) {
  std::set<std::string_view> names;
  for (const Framework* framework : frameworks()) {
    if (!framework->search_space()) continue;
    std::vector<Variant> all(framework->search_space()->variants().begin(), framework->search_space()->variants().end());
    for (const Variant& variant : framework->search_space()->further_variants()) all.push_back(variant);
    for (const Variant& variant : all) {
      EXPECT_TRUE(names.insert(variant.name).second) << variant.name;
      const Scenario world = world_of(variant);
      EXPECT_FALSE(admission_error(world)) << variant.name;
      EXPECT_EQ(search_space_of(world).variant_of(world), variant.name);
      EXPECT_EQ(&search::framework_of(variant), framework) << variant.name;
    }
  }
  EXPECT_GE(names.size(), 8u);
}

TEST(variants, have_the_traits_that_their_contracts_say) {
  std::set<std::vector<bool>> all;
  for (const Variant& variant : variants()) {
    const Scenario world = world_of(variant);
    const EngineTraits& t = variant.traits;
    EXPECT_EQ(t.reduces_every_backward, contract_of(world).reduces_every_backward) << variant.name;
    EXPECT_EQ(!t.reduces_every_backward, contract_of(world).replicates_reduced) << variant.name;
    EXPECT_TRUE(all.insert({t.reduces_to_owners, t.reduces_every_backward, t.accumulates_itself, t.gathers_weights, t.offloads}).second)
        << variant.name << " has the traits of another";
  }
}

TEST(tuning, is_what_the_contract_has_afterwards) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    Scenario s = world_of(variant);
    const Tuning& tuning = tuning_of(s);
    EXPECT_TRUE(tuning.count_windows(s, 4) && tuning.manage_windows(s) && tuning.clip(s, 0.25));
    EXPECT_EQ(contract_of(s).boundary.calls, 4u);
    EXPECT_EQ(contract_of(s).divisor, Rational(4));
    EXPECT_TRUE(contract_of(s).boundary.counted);
    EXPECT_EQ(contract_of(s).clip.max_norm, 0.25);
    EXPECT_TRUE(tuning.set_model_dtype(s, Dtype::float16) && tuning.set_accumulation_dtype(s, std::nullopt) && tuning.set_wire_dtype(s, Dtype::float32));
    EXPECT_EQ(contract_of(s).accumulation, Dtype::float16);
    EXPECT_EQ(contract_of(s).wire, Dtype::float32);
    EXPECT_TRUE(tuning.set_loss_scale(s, {.initial = 32}));
    EXPECT_EQ(contract_of(s).loss_scale.initial, 32);
    EXPECT_FALSE(contract_of(s).loss_scale.dynamic);
    EXPECT_TRUE(tuning.set_loss_scale(s, {.initial = 8, .dynamic = true, .window = 5}));
    EXPECT_EQ(contract_of(s).loss_scale.initial, 8);
    EXPECT_TRUE(contract_of(s).loss_scale.dynamic);
    EXPECT_EQ(contract_of(s).loss_scale.window, 5u);
    EXPECT_EQ(tuning.average_over(s), "world");
  }
}

TEST(tuning, leaves_a_scenario_alone_where_a_framework_has_nothing_of_the_kind) {
  const Tuning none;
  const Scenario before = base_scenario(2, {8}, Dtype::float32);
  Scenario s = before;
  EXPECT_FALSE(none.count_windows(s, 4) || none.manage_windows(s) || none.clip(s, 1) || none.set_model_dtype(s, Dtype::float16) || none.set_accumulation_dtype(s, std::nullopt));
  EXPECT_FALSE(none.set_wire_dtype(s, std::nullopt) || none.set_loss_scale(s, {}) || none.overlap(s, true) || none.fill_flat_buckets(s) || none.limit_buckets(s, 1));
  EXPECT_FALSE(none.scatter(s) || none.reduce_to_owners(s) || none.pin_host_memory(s) || none.approximate(s) || none.set_defect(s, "host-accumulator-gated", true));
  EXPECT_EQ(serialise(s), serialise(before));
}

// With the defect and without it are two configurations, both of which the framework serves.
TEST(tuning, has_the_defects_that_mutants_name) {
  for (const char* fault : {"boundary-private", "accumulator-tests-the-wrong-list", "host-accumulator-gated", "unscaled-by-the-next-scale", "scale-grows-late", "scale-not-halved",
                            "momentum-advanced-by-a-skipped-step", "momentum-of-the-last-matrix", "momentum-of-each-micro-batch"}) {
    ASSERT_TRUE(mutant_named(fault, "").ok()) << fault;
    Scenario with = world_of(variants().front()), without = with;
    EXPECT_TRUE(tuning_of(with).set_defect(with, fault, true)) << fault;
    EXPECT_TRUE(tuning_of(without).set_defect(without, fault, false)) << fault;
    EXPECT_NE(serialise(with), serialise(without)) << fault;
    EXPECT_FALSE(admission_error(with) || admission_error(without)) << fault;
  }
  Scenario s = world_of(variants().front());
  EXPECT_FALSE(tuning_of(s).set_defect(s, "sum-skipped", true));
}

TEST(history, names_states_of_the_code_in_their_order) {
  const History& history = *default_framework().history();
  std::string before;
  for (const std::string& point : history.points()) {
    EXPECT_EQ(history.contains_all_of(point, point), true) << point;
    EXPECT_EQ(history.contains_all_of("head", point), true) << point;
    if (!before.empty()) {
      EXPECT_EQ(history.contains_all_of(point, before), true) << point;
      EXPECT_EQ(history.contains_all_of(before, point), false) << point;
    }
    before = point;
  }
  EXPECT_FALSE(history.contains_all_of("head", "0.1.2.3.4"));
  EXPECT_FALSE(history.contains_all_of("0.1.2.3.4", "head"));
  for (const Repair& repair : history.repairs()) {
    EXPECT_EQ(history.switch_value(AsOf{"head", {{std::string(repair.name), repair.right.data()}}}, repair.name), std::string(repair.right)) << repair.entry;
    EXPECT_FALSE(history.switch_value(AsOf{"no release", {}}, repair.name)) << repair.entry;
  }
}

TEST(catalogue, of_a_scenario_is_that_of_its_framework_and_of_loops) {
  Scenario scenario = base_scenario(2, {8}, Dtype::float32);
  scenario.script = {backward(), step()};
  auto document = nlohmann::json::parse(serialise(scenario));
  const auto problem = [&](const char* framework, const char* entry) -> std::string {
    document["engine"]["framework"] = framework;
    document["engine"]["config"] = nlohmann::json::object();
    document["engine"]["as_of"] = "head";
    document["covers"] = {entry};
    const auto read = read_scenario(document.dump(), ".");
    return read.ok() ? "" : read.error().where;
  };
  EXPECT_EQ(problem("deepspeed", "catalogue-1"), "");
  EXPECT_EQ(problem("ddp", "catalogue-1"), "/covers/0");
  EXPECT_EQ(problem("deepspeed", "zoo-32"), "");
  EXPECT_EQ(problem("ddp", "zoo-32"), "");
  EXPECT_EQ(problem("ddp", "zoo-0"), "/covers/0");
}

}  // namespace
}  // namespace gradledger::testing
