// Megatron-Core's layouts and schedules: that they are drawn, tried and made small, and that what goes wrong in them is seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "search/campaign/campaign.h"
#include "search/mutants/blocks.h"
#include "search/mutants/hunt.h"
#include "search/sequences/alphabet.h"
#include "search/sequences/explore.h"
#include "search/shrink/shrink.h"
#include "sim/frameworks/megatron/config.h"
#include "sim/frameworks/megatron/events.h"
#include "sim/frameworks/search_space.h"
#include "sim/load.h"
#include "sim/scenario/parse.h"

namespace gradledger::testing {
namespace {

using namespace gradledger::search;
using megatron::MegatronConfig;

Profile profile(bool as_documented) {
  Profile out;
  for (const Variant& variant : framework_named("megatron")->search_space()->variants()) out.variants.push_back(&variant);
  out.as_documented = as_documented;
  return out;
}

bool calls_schedule(const Scenario& s) {
  return std::any_of(s.script.begin(), s.script.end(), [](const ScriptItem& i) { return i.kind == ScriptKind::of_framework && i.event.name == megatron::schedule_event; });
}

bool has_part(const Scenario& s) {
  return std::any_of(s.parameters.begin(), s.parameters.end(), [](const Parameter& p) { return p.part.has_value(); });
}

const MegatronConfig& config_of(const Scenario& s) { return s.engine.config.as<MegatronConfig>(); }

// Dimensions that are divided, and how the schedule is called.
std::set<std::string> kinds_of(const Scenario& s) {
  std::set<std::string> out;
  for (const char* dimension : {"tp", "cp", "pp", "ep"})
    if (s.layout && s.layout->size(dimension) > 1) out.insert(std::string("layout of ") + dimension);
  if (s.layout && !s.layout->order().empty()) out.insert("another order");
  if (s.engine.pipeline_stages == 4) out.insert("four stages");
  if (has_part(s)) out.insert("parts");
  for (const Parameter& p : s.parameters) {
    if (!p.summed_over.empty()) out.insert("summed");
    if (!p.averaged_over.empty()) out.insert("averaged");
  }
  if (!calls_schedule(s)) return out;
  const megatron::ScheduleOptions& schedule = *config_of(s).schedule;
  const std::string call = schedule.interleaved() ? "interleaved" : s.engine.pipeline_stages > 1 ? "1F1B" : "without a pipeline";
  out.insert(call + (schedule.grad_sync_func ? ", aligned" : ""));
  if (s.layout && s.layout->size("tp") > 1 && s.engine.pipeline_stages > 1) out.insert(call + " with tensor-parallel ranks");
  return out;
}

TEST(megatron_is_drawn, with_every_kind_of_layout_and_schedule) {
  for (const bool as_documented : {true, false}) {
    std::set<std::string> kinds;
    for (std::uint64_t number = 0; number < 6000; ++number) kinds.merge(kinds_of(draw(profile(as_documented), 4, number)));
    for (const char* kind : {"layout of tp", "layout of cp", "layout of pp", "layout of ep", "another order", "four stages", "parts", "summed", "averaged", "without a pipeline",
                             "1F1B", "1F1B, aligned", "interleaved", "interleaved, aligned", "1F1B with tensor-parallel ranks", "interleaved with tensor-parallel ranks"})
      EXPECT_TRUE(kinds.contains(kind)) << kind << (as_documented ? ", as documented" : "");
  }
}

// ---- faults in what is drawn --------------------------------------------------------------------------------------------------------

// The first documented case in which the fault shows, and what is reported. The case itself is clean.
std::vector<ref::FindingClass> found(const Fault& fault, const std::function<bool(const Scenario&)>& fits) {
  for (std::uint64_t number = 0; number < 4000; ++number) {
    const Scenario drawn = draw(profile(true), 9, number);
    if (!fits(drawn)) continue;
    std::vector<ref::FindingClass> reported = reported_classes(drawn, with_fault(fault), 1);
    if (reported.empty()) continue;
    EXPECT_TRUE(reported_classes(drawn, EngineFactory(), 1).empty()) << serialise(drawn);
    return reported;
  }
  return {};
}

bool among(const std::vector<ref::FindingClass>& reported, std::initializer_list<ref::FindingClass> fitting) {
  return std::any_of(fitting.begin(), fitting.end(), [&](ref::FindingClass c) { return std::find(reported.begin(), reported.end(), c) != reported.end(); });
}

TEST(faults_in_megatrons_layouts, are_found) {
  using enum ref::FindingClass;
  const auto aligned = [](const Scenario& s) { return calls_schedule(s) && s.engine.pipeline_stages > 1 && config_of(s).schedule->grad_sync_func; };
  const auto interleaved = [](const Scenario& s) { return calls_schedule(s) && config_of(s).schedule->interleaved() && config_of(s).ddp.overlap_grad_reduce; };
  const auto shared = [](const Scenario& s) { return kinds_of(s).contains("summed"); };
  const Fault early{.edit = edit(at_backward, Take::each, reductions, to_the_front)};
  EXPECT_TRUE(among(found(early, aligned), {discarded_gradient, wrong_scale, stream_race})) << "a stage begins its reduction before its last backward";
  const Fault lost{.edit = edit(at_backward, Take::first, reductions, dropped)};
  EXPECT_TRUE(among(found(lost, interleaved), {missing_reduction, boundary_leak, discarded_gradient, wrong_scale})) << "a chunk is not reduced";
  const auto sums_shares = [](const Tape& tape, const Op& op) { return op.kind == OpKind::collective && tape.buffer(tape.call(op).input).name.starts_with("coalesced_sum"); };
  const Fault private_share{.edit = edit(always, Take::each, sums_shares, dropped)};
  EXPECT_FALSE(found(private_share, shared).empty()) << "tensor-parallel ranks do not add up what each has of a gradient";
}

// What a defect of this kind would look like in scenarios that are clean.
TEST(mutants_of_layouts, are_found_in_the_corpus) {
  for (const auto& [name, file] :
       {std::pair("experts-averaged-with-dense-parameters", "layouts/experts-of-two-stages.json"),
        std::pair("shared-embedding-not-summed", "layouts/tied-embedding-of-stages.json"), std::pair("shared-embedding-summed-twice", "layouts/tied-embedding-of-stages.json"),
        std::pair("sequence-share-not-summed-on-a-rank", "layouts/tensor-parallel.json"),
        std::pair("no-sync-unheard-later-on-a-rank", "megatron/megatron-no-sync-of-both-ranks.json")}) {
    SCOPED_TRACE(name);
    const auto scenario = load_scenario(std::filesystem::path(GRADLEDGER_SOURCE_DIR) / "scenarios" / file, {}, nullptr);
    ASSERT_TRUE(scenario);
    const Mutant& mutant = **mutant_named(name, "");
    EXPECT_TRUE(reported_classes(*scenario, EngineFactory(), 1).empty());
    const std::vector<ref::FindingClass> reported = reported_classes(*scenario, with_fault(mutant), 1);
    EXPECT_TRUE(std::any_of(reported.begin(), reported.end(), [&](ref::FindingClass c) {
      return std::find(mutant.classes.begin(), mutant.classes.end(), c) != mutant.classes.end();
    })) << reported.size();
  }
}

// ---- made small ---------------------------------------------------------------------------------------------------------------------

std::optional<Scenario> first_drawn(const std::function<bool(const Scenario&)>& fits) {
  for (std::uint64_t number = 0; number < 4000; ++number)
    if (Scenario drawn = draw(profile(true), 9, number); fits(drawn)) return drawn;
  return std::nullopt;
}

Scenario smallest(const Scenario& from, const std::function<bool(const Scenario&)>& shows) {
  return shrink(from, [&](const Scenario& s) { return !admission_error(s) && shows(s); }, {}).scenario;
}

TEST(layouts_made_small, lose_what_does_not_matter) {
  const auto drawn = first_drawn([](const Scenario& s) { return has_part(s) && s.layout->size("pp") > 1 && !s.layout->order().empty(); });
  ASSERT_TRUE(drawn);
  const Scenario plain = smallest(*drawn, [](const Scenario&) { return true; });
  EXPECT_FALSE(plain.layout);
  EXPECT_FALSE(has_part(plain));
  EXPECT_EQ(plain.world_size, 1u);
  const Scenario cut = smallest(*drawn, has_part);
  ASSERT_TRUE(cut.layout);
  EXPECT_EQ(cut.world_size, 2u);
  EXPECT_EQ(cut.layout->size("pp"), 1u);
  EXPECT_TRUE(cut.layout->order().empty());
  EXPECT_EQ(cut.parameters.size(), 2u) << serialise(cut);
  EXPECT_EQ(cut.parameters.front().numel, 1u);
  EXPECT_TRUE(read_scenario(serialise(cut), ".").ok()) << serialise(cut);
}

bool documented(const Scenario& s) { return framework_of(s).use_of(s, make_timeline(s).value()).misuses.empty(); }

TEST(schedules_made_small, are_called_with_as_few_micro_batches_as_there_can_be) {
  const auto drawn = first_drawn([](const Scenario& s) { return calls_schedule(s) && config_of(s).schedule->interleaved() && config_of(s).schedule->num_microbatches > 2; });
  ASSERT_TRUE(drawn);
  const auto documented_call = [](const Scenario& s) { return calls_schedule(s) && s.script.back().kind == ScriptKind::step && documented(s); };
  const Scenario chunks = smallest(*drawn, [&](const Scenario& s) { return documented_call(s) && config_of(s).schedule->interleaved(); });
  EXPECT_EQ(config_of(chunks).schedule->num_microbatches, chunks.engine.pipeline_stages) << serialise(chunks);
  const Scenario any = smallest(*drawn, documented_call);
  EXPECT_FALSE(config_of(any).schedule->interleaved()) << serialise(any);
  EXPECT_EQ(config_of(any).schedule->num_microbatches, 1u) << serialise(any);
  EXPECT_FALSE(calls_schedule(smallest(*drawn, [](const Scenario&) { return true; })));
}

// ---- tried --------------------------------------------------------------------------------------------------------------------------

Scenario pipeline(const char* schedule) {
  const std::string text = std::string(R"({"name": "world", "world_size": 2, "parameters": [{"name": "a0", "numel": 8}, {"name": "b0", "numel": 8},
    {"name": "a1", "numel": 8, "pipeline_stage": 1}, {"name": "b1", "numel": 8, "pipeline_stage": 1}], "model_dtype": "fp32",
    "engine": {"framework": "megatron", "pipeline_stages": 2, "config": {"optimizer_config": {"clip_grad": 0.0}, "ddp": {"overlap_grad_reduce": true})") +
                           schedule + R"(}, "optimizer": {"type": "SGD", "lr": 1.0}}, "script": [{"step": {}}], "expect": {"findings": []}})";
  auto out = read_scenario(text, ".");
  EXPECT_TRUE(out.ok()) << out.error().text();
  return *out;
}

const char* const chunks = R"(, "schedule": {"num_microbatches": 2, "grad_sync_func": true, "model_chunks": [["a0", "a1"], ["b0", "b1"]]})";

std::vector<Letter> letters_of(const Scenario& world, const std::vector<std::string>& words) {
  std::vector<Letter> out;
  for (const std::string& word : words) out.push_back(*letter_from(word, world.world_size, "", search_space_of(world).letters(world)));
  return out;
}

TEST(an_exploration_of_a_pipeline, calls_its_schedule_with_the_backwards_that_it_runs) {
  for (const char* schedule : {chunks, R"(, "schedule": {"num_microbatches": 2})"}) {
    ExploreOptions options;
    options.world = pipeline(schedule);
    const std::vector<std::string> words = search_space_of(options.world).alphabet(options.world);
    ASSERT_EQ(words.back(), megatron::schedule_event);
    options.alphabet = letters_of(options.world, {"forward_backward_func", "finalize_model_grads", "step", "engine.zero_grad"});
    options.length = 7;
    options.as_documented = true;
    options.merge_states = false;
    const ExploreResult documented = explore(options);
    EXPECT_TRUE(documented.complete);
    EXPECT_TRUE(documented.found.empty()) << documented.found.front().sentence;
    EXPECT_GT(documented.elements, 100u);
    options.as_documented = false;
    options.length = 4;
    EXPECT_FALSE(explore(options).found.empty()) << "a step without finalize_model_grads";
  }
}

TEST(an_exploration_of_a_pipeline, has_no_call_where_there_is_no_schedule_in_blocks_or_for_some_ranks) {
  const Scenario without = pipeline(""), with = pipeline(chunks);
  const std::vector<std::string> words = search_space_of(without).alphabet(without);
  EXPECT_EQ(std::find(words.begin(), words.end(), megatron::schedule_event), words.end());
  const SearchSpace& space = search_space_of(with);
  EXPECT_FALSE(letter_from("forward_backward_func", 2, "", space.letters(without)).ok());
  EXPECT_FALSE(letter_from("forward_backward_func@1", 2, "", space.letters(with)).ok());
  const std::vector<Letter> letters = letters_of(with, {"forward_backward_func", "no_sync", "end"});
  EXPECT_EQ(backwards_max(letters), 4u);
  const auto calls = space.calls(with);
  EXPECT_TRUE(script_of(letters, {0, 1, 2, 0}, *calls));
  EXPECT_FALSE(script_of(letters, {1, 0, 2}, *calls));
}

}  // namespace
}  // namespace gradledger::testing
