// What is drawn: the same from a seed, whole, and what a framework takes.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

#include "search/draw/generator.h"
#include "search/draw/swarm.h"
#include "sim/engine/engine.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/search_space.h"
#include "sim/load.h"
#include "sim/scenario/parse.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

using namespace gradledger::search;

RC_GTEST_PROP(draw, gives_the_same_case_for_the_same_seed_and_a_file_holds_it, (std::uint64_t seed)) {
  const Profile profile;
  const std::uint64_t number = *rc::gen::inRange<std::uint64_t>(0, 1u << 20);
  const Scenario once = draw(profile, seed, number);
  RC_ASSERT(once == draw(profile, seed, number));
  const auto read = read_scenario(serialise(once), ".");
  RC_ASSERT(read.ok());
  RC_ASSERT(*read == once);
}

// Notes of findings name cases by their numbers: they are the same with every version of the library.
TEST(draws, come_from_numbers_that_do_not_change) {
  rc::Random random(rc::Random::Key{1, 2, 3, 4});
  for (const std::uint64_t number : {0x54fd2a0020b20674ull, 0x1c3657d837b481acull, 0xa70984f3314290a8ull, 0x5649f12f7ac84eeaull}) EXPECT_EQ(random.next(), number);
  EXPECT_EQ(rc::Random(7).next(), 0xa63c0cd84325e51aull);
}

TEST(draw, differs_between_seeds_and_numbers) {
  std::set<std::string> texts;
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    for (std::uint64_t number = 0; number < 10; ++number) {
      Scenario s = draw({}, seed, number);
      s.name = "";
      texts.insert(serialise(s));
    }
  EXPECT_GE(texts.size(), 95u);
}

TEST(draw, leaves_the_loss_scale_of_fp16_open_now_and_then) {
  std::size_t open = 0, stated = 0;
  for (std::uint64_t number = 0; number < 600; ++number) {
    const Scenario s = draw({}, 1, number);
    const Fp16Config& fp16 = deepspeed_config(s).fp16;
    if (fp16.enabled) ++(fp16.leaves_the_scaler_open() ? open : stated);
  }
  EXPECT_GT(open, 2u);
  EXPECT_GT(stated, 4 * open);
}

TEST(draw, keeps_to_the_profile) {
  for (const Variant& variant : variants()) {
    Profile profile;
    profile.variants = {&variant};
    profile.world_max = 2;
    profile.as_of.base = "0.18.9";
    for (std::uint64_t number = 0; number < 50; ++number) {
      const Scenario s = draw(profile, 3, number);
      EXPECT_LE(s.world_size, 2u);
      EXPECT_EQ(s.engine.as_of.base, "0.18.9");
      Scenario same = s;
      variant.apply(same);
      EXPECT_EQ(same, s) << variant.name;
    }
  }
}

// Marks of the features in what was drawn, so that none is dead.
std::set<std::string> traits_of(const Scenario& s) {
  std::set<std::string> out{std::string(name_of(s.model_dtype)), "stage" + std::to_string(deepspeed_config(s).zero.stage), std::string(engine_name(s))};
  const auto note = [&](bool has, const char* what) {
    if (has) out.insert(what);
  };
  const DeepSpeedConfig& c = deepspeed_config(s);
  note(c.grad_accum_dtype.has_value(), "accumulation dtype");
  note(c.communication_data_type.has_value(), "wire dtype");
  note(c.gradient_clipping.value_or(0) > 0, "clipping");
  note(s.engine.optimizer.type != OptimizerType::sgd, "adam");
  note(!s.engine.param_groups.empty(), "groups");
  note(s.engine.pipeline_stages > 1, "pipeline");
  note(s.engine.expert_parallel_size > 1, "experts");
  note(s.engine.sequence_parallel_size > 1, "sequence");
  note(c.zero.reduce_bucket_size < 100, "small buckets");
  note(!c.zero.contiguous_gradients, "no contiguous");
  note(!c.zero.reduce_scatter, "no reduce-scatter");
  note(c.zero.overlap_comm == true, "overlap");
  note(c.zero.offload_pin_memory == true, "pinned");
  note(c.zero.sub_group_size < 100, "sub-groups");
  note(!c.managed_gradient_accumulation, "unmanaged");
  note(c.bf16.immediate_grad_update == true, "immediate");
  note(c.gradient_allreduce_op == AllreduceOp::sum, "sum");
  note(c.gradient_predivide_factor != 1, "predivide");
  for (const Parameter& p : s.parameters) {
    note(!p.trainable, "frozen");
    note(p.tied_to.has_value(), "tied");
    note(p.on_side_stream, "side");
    note(p.hooked_outputs != 1, "hooks");
    note(p.used_by.has_value(), "used by");
    note(p.numel == 0, "empty");
  }
  const auto walk = [&](auto&& self, const std::vector<ScriptItem>& items) -> void {
    for (const ScriptItem& i : items) {
      out.insert("kind" + std::to_string(static_cast<int>(i.kind)));
      note(i.direct, "direct");
      note(i.phases > 1, "phases");
      note(i.kind == ScriptKind::backward && !i.uses.empty(), "uses");
      note(!i.order.empty(), "order");
      note(!i.scale_wrt_gas, "unscaled");
      note(!i.ranks.empty(), "some ranks");
      note(i.local, "local");
      self(self, i.items);
    }
  };
  walk(walk, s.script);
  return out;
}

TEST(draw, reaches_every_feature) {
  std::map<std::string, int> seen;
  for (std::uint64_t number = 0; number < 3000; ++number)
    for (const std::string& trait : traits_of(draw({}, 1, number))) ++seen[trait];
  // 3 dtypes, 4 stages, 6 classes, 11 kinds of script item (repeats aside), 18 of configuration, 6 of parameters, 7 of events.
  EXPECT_EQ(seen.size(), 3u + 4 + 6 + 11 + 18 + 6 + 7) << ::testing::PrintToString(seen);
  for (const auto& [trait, count] : seen) EXPECT_GE(count, 3) << trait;
}

bool raises(const std::vector<ScriptItem>& items) {
  return std::any_of(items.begin(), items.end(), [](const ScriptItem& i) { return i.raises_after || raises(i.items); });
}

TEST(draw, has_backwards_that_raise_where_the_framework_s_model_has_and_never_as_documented) {
  const auto raising = [](const char* name, bool as_documented) {
    Profile profile;
    profile.variants = {*variant_named(name, "")};
    profile.as_documented = as_documented;
    int out = 0;
    for (std::uint64_t number = 0; number < 100; ++number) {
      const Scenario s = draw(profile, 9, number);
      out += raises(s.script);
      EXPECT_TRUE(raises(s.script) || s.after_error == AfterError::stop) << serialise(s);
    }
    return out;
  };
  for (const char* name : {"ddp", "fsdp1", "fsdp2"}) {
    EXPECT_GT(raising(name, false), 5) << name;
    EXPECT_EQ(raising(name, true), 0) << name;
  }
  for (const char* name : {"zero2", "megatron"}) EXPECT_EQ(raising(name, false), 0) << name << ": it refuses them";
}

TEST(draw, as_documented_loses_nothing_at_head) {
  Profile profile;
  profile.as_documented = true;
  for (std::uint64_t number = 0; number < 120; ++number) {
    const Scenario s = draw(profile, 5, number);
    const ref::Verdict verdict = judge(s);
    EXPECT_TRUE(verdict.clean()) << serialise(s) << verdict.findings.front().sentence;
    EXPECT_GT(verdict.ledger.elements, 0u);
  }
}

TEST(draw, writes_no_event_that_the_framework_refuses) {
  for (std::uint64_t number = 0; number < 400; ++number) {
    const Scenario s = draw({}, 11, number);
    for (const ref::Finding& f : judge(s).findings)
      if (f.finding == ref::FindingClass::engine_error) {
        EXPECT_EQ(f.sentence.find("refused"), std::string::npos) << f.sentence;
      }
  }
}

TEST(swarm, turns_features_off_and_weighs_the_others_very_differently) {
  std::map<std::uint32_t, int> weights;
  const auto features = default_framework().search_space()->features();
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Draws draws{rc::Random(seed)};
    const Swarm swarm(draws, features);
    for (const FeatureInfo& f : features) ++weights[swarm.weight(f.feature)];
  }
  EXPECT_EQ(weights.size(), 6u);  // off, 1, 2, 4, 8, 16
  const int all = 200 * static_cast<int>(features.size());
  EXPECT_GT(weights[0], all * 2 / 5);
  EXPECT_LT(weights[0], all * 3 / 5);
  EXPECT_GT(weights[16], all / 20);
}

TEST(swarm, names_every_feature_once_and_has_those_that_are_not_listed_off) {
  for (const Framework* framework : frameworks()) {
    if (!framework->search_space()) continue;
    const auto features = framework->search_space()->features();
    std::set<std::string_view> names;
    std::set<Feature> listed;
    for (const FeatureInfo& f : features) {
      names.insert(f.name);
      listed.insert(f.feature);
    }
    EXPECT_EQ(names.size(), features.size()) << framework->id();
    EXPECT_EQ(listed.size(), features.size()) << framework->id();
    EXPECT_FALSE(names.contains("")) << framework->id();
    Draws draws{rc::Random(1)};
    const Swarm swarm(draws, features.first(3));
    for (std::size_t f = 0; f < features_max; ++f) {
      const auto feature = static_cast<Feature>(f);
      const bool drawn = feature == features[0].feature || feature == features[1].feature || feature == features[2].feature;
      EXPECT_TRUE(drawn || !swarm.on(feature)) << framework->id() << " " << f;
    }
  }
}

TEST(variant, is_found_by_name_and_a_near_miss_is_answered) {
  for (const Variant& variant : variants()) EXPECT_EQ((*variant_named(variant.name, "--engine"))->name, variant.name);
  const auto missed = variant_named("zero2-ofload", "--engine");
  ASSERT_FALSE(missed.ok());
  EXPECT_NE(missed.error().message.find("did you mean \"zero2-offload\""), std::string::npos) << missed.error().message;
}

}  // namespace
}  // namespace gradledger::testing
