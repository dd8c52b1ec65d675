// Known defects: which one a finding is, since when, and that what is said to avoid it does.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "search/blame/way_out.h"
#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/framework.h"
#include "sim/frameworks/deepspeed/repairs.h"
#include "tests/support/of_numbers.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

const std::filesystem::path corpus_folder = std::filesystem::path(GRADLEDGER_SOURCE_DIR) / "scenarios";

Scenario scenario_at(const std::string& file) { return load_scenario(corpus_folder / file).value(); }

std::vector<ref::Finding> explained(const Scenario& s) {
  ref::Verdict verdict = judge(s);
  const auto timeline = make_timeline(s);
  const search::Judge again = [](const Scenario& other, const Timeline&) { return judge(other); };
  search::assign_blame(s, *timeline, verdict.findings, again);
  search::find_known_defects(s, *timeline, verdict.findings, again);
  return verdict.findings;
}

std::set<std::string> words_of(std::string_view text) {
  std::set<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(", ", at), text.size());
    out.insert(std::string(text.substr(at, end - at)));
    at = end + 2;
  }
  return out;
}

// The entry itself, or one that tells of the same change or issue.
bool same_defect(const std::string& entry, const std::string& other) {
  if (entry == other || (entry == "catalogue-2" && other == "catalogue-3")) return true;  // 3 brought the condition that 2 repairs
  const auto a = words_of((*entry_named(entry, ""))->origin), b = words_of((*entry_named(other, ""))->origin);
  return std::any_of(a.begin(), a.end(), [&](const std::string& word) { return b.contains(word); });
}

// Every scenario that covers entries and reports something: the entry that its findings are found to be.
const std::map<std::string, std::vector<ref::Finding>>& of_the_corpus() {
  static const auto all = [] {
    std::map<std::string, std::vector<ref::Finding>> out;
    for (const char* folder : {"catalogue", "live", "deepspeed-7981", "deepspeed-7985", "streams", "set-gradient", "coalesce", "parameters", "muon", "layouts"})
      for (const auto& entry : std::filesystem::directory_iterator(corpus_folder / folder)) {
        const auto s = load_scenario(entry.path());
        if (!s || s->covers.empty() || s->expect.findings.empty() || s->expect.accounting_only || !testing::fits_numbers(*s)) continue;
        out[std::string(folder) + "/" + entry.path().filename().string()] = explained(*s);
      }
    return out;
  }();
  return all;
}

TEST(repairs, name_entries_switches_and_values_that_there_are) {
  for (const Repair& r : repairs()) {
    EXPECT_TRUE(entry_named(r.entry, "").ok()) << r.entry;
    for (const std::string_view value : {r.wrong, r.right}) {
      if (!value.empty()) {
        EXPECT_TRUE(resolve_behaviour(AsOf{"head", {{std::string(r.name), std::string(value)}}}).ok()) << r.name << " " << value;
      }
    }
    EXPECT_NE(r.wrong, r.right) << r.entry;
  }
}

TEST(a_known_defect, is_the_one_that_the_scenario_was_written_for) {
  std::set<std::string> named;
  for (const auto& [file, findings] : of_the_corpus()) {
    const Scenario s = scenario_at(file);
    for (const ref::Finding& f : findings) {
      if (!f.known) continue;
      named.insert(f.known->entry);
      EXPECT_TRUE(std::any_of(s.covers.begin(), s.covers.end(), [&](const std::string& id) { return same_defect(f.known->entry, id); })) << file << " is named " << f.known->entry;
    }
  }
  std::set<std::string> all;
  for (const Repair& r : repairs()) all.insert(std::string(r.entry));
  std::set<std::string> never;
  std::set_difference(all.begin(), all.end(), named.begin(), named.end(), std::inserter(never, never.begin()));
  EXPECT_EQ(never, (std::set<std::string>{}));
}

TEST(a_known_defect, is_not_looked_for_where_that_would_take_long) {
  Scenario s = scenario_at("deepspeed-7981/offload-keeps-only-the-last-0.18.9.json");
  s.parameters[0].numel = 1u << 20;
  ref::Verdict verdict;
  verdict.findings.resize(1);
  verdict.findings[0].blame = ref::Blame{ref::Whose::framework, "", ""};
  const search::Judge never = [](const Scenario&, const Timeline&) -> ref::Verdict {
    ADD_FAILURE() << "a run of this size was judged again";
    return {};
  };
  search::find_known_defects(s, *make_timeline(s), verdict.findings, never);
  EXPECT_TRUE(verdict.findings[0].too_large);
  EXPECT_FALSE(verdict.findings[0].known);
}

TEST(a_known_defect, of_a_large_run_is_looked_for_by_weights_if_these_show_the_finding_and_tensors_are_few) {
  Scenario s = scenario_at("deepspeed-7981/offload-keeps-only-the-last-0.18.9.json");
  s.parameters[0].numel = 1u << 20;
  ref::Verdict verdict;
  verdict.findings.resize(1);
  verdict.findings[0].blame = ref::Blame{ref::Whose::framework, "", ""};
  std::size_t runs = 0;
  const search::Judge shows_nothing = [&](const Scenario&, const Timeline&) -> ref::Verdict {
    ++runs;
    return {};
  };
  search::find_known_defects(s, *make_timeline(s), verdict.findings, {}, shows_nothing);
  EXPECT_EQ(runs, 1u) << "the scenario itself, and no repair that could seem to cure what is not shown";
  EXPECT_TRUE(verdict.findings[0].too_large);
  EXPECT_FALSE(verdict.findings[0].known);
  s.parameters.assign(limits::compared_tensors_max, s.parameters[0]);
  search::find_known_defects(s, *make_timeline(s), verdict.findings, {}, shows_nothing);
  EXPECT_EQ(runs, 1u);
  EXPECT_TRUE(verdict.findings[0].too_large);
}

// ---- runs of true size ----------------------------------------------------------------------------------------------------------------

ref::Verdict judge_weights(const Scenario& s, const Timeline& timeline) {
  HostExecutor producer(s, timeline);
  ref::OracleOptions options;
  options.executor = ref::Executor::symbolic;
  return ref::judge(s, timeline, producer, options);
}

// 256 ranks, 64 micro-batches and 64 tensors: a million tensors in all, of which two ranks have 1 024 to run one by one.
Scenario of_true_size() {
  Scenario s = scenario_at("deepspeed-7981/offload-keeps-only-the-last-0.18.9.json");
  s.world_size = 256;
  s.parameters.assign(64, s.parameters[0]);
  for (std::size_t p = 0; p < s.parameters.size(); ++p) s.parameters[p].name = "w" + std::to_string(p);
  s.parameters[0].numel = 1u << 20;
  s.script = {boundary(false), backward(63), boundary(true), backward(), step()};
  return s;
}

std::vector<ref::Finding> framework_findings(ref::FindingClass finding) {
  std::vector<ref::Finding> out(1);
  out[0].finding = finding;
  out[0].blame = ref::Blame{ref::Whose::framework, "", ""};
  return out;
}

TEST(a_known_defect, of_more_ranks_than_can_be_judged_again_is_the_one_that_its_first_ranks_show) {
  const Scenario s = of_true_size();
  ASSERT_FALSE(admission_error(s));
  std::set<std::uint32_t> worlds;
  const search::Judge by_weights = [&](const Scenario& other, const Timeline& timeline) {
    worlds.insert(other.world_size);
    return judge_weights(other, timeline);
  };
  auto findings = framework_findings(ref::FindingClass::offload_loss);
  search::find_known_defects(s, *make_timeline(s), findings, {}, by_weights);
  ASSERT_TRUE(findings[0].known.has_value());
  EXPECT_FALSE(findings[0].too_large);
  EXPECT_EQ(findings[0].known->entry + " " + findings[0].known->since + " - " + findings[0].known->fixed, "catalogue-1 0.16.0 or before - 0.19.0");
  EXPECT_EQ(findings[0].known->ranks, 2u);
  EXPECT_EQ(worlds, std::set<std::uint32_t>{2});
}

TEST(a_known_defect, of_more_ranks_than_can_be_judged_again_is_not_named_after_ranks_that_do_not_show_it) {
  const Scenario s = of_true_size();
  std::map<std::uint32_t, std::size_t> runs;  // by ranks
  const auto shown_from = [&](std::uint32_t ranks) {
    runs.clear();
    auto findings = framework_findings(ref::FindingClass::offload_loss);
    search::find_known_defects(s, *make_timeline(s), findings, {}, [&](const Scenario& other, const Timeline& timeline) {
      ++runs[other.world_size];
      return other.world_size >= ranks ? judge_weights(other, timeline) : ref::Verdict{};
    });
    return findings[0];
  };
  const ref::Finding found = shown_from(8);
  ASSERT_TRUE(found.known.has_value());
  EXPECT_EQ(found.known->ranks, 8u);
  EXPECT_EQ(runs[2], 1u) << "no repair can cure what is not shown";
  EXPECT_EQ(runs[4], 1u);
  EXPECT_GT(runs[8], 2u);
  const ref::Finding lost = shown_from(1u << 20);
  EXPECT_TRUE(lost.too_large);
  EXPECT_FALSE(lost.known.has_value());
  EXPECT_EQ(runs, (std::map<std::uint32_t, std::size_t>{{2, 1}, {4, 1}, {8, 1}, {16, 1}, {32, 1}, {64, 1}, {128, 1}}));
}

// 2^36 elements, 256 ranks and 2^20 contributions of each: a product that is none in 64 bits.
TEST(a_known_defect, of_more_elements_than_64_bits_count_is_not_looked_for_on_numbers) {
  Scenario s = of_true_size();
  s.parameters.resize(1);
  s.parameters[0].numel = std::uint64_t{1} << 36;
  Timeline timeline = *make_timeline(s);
  timeline.backwards.resize(std::size_t{1} << 20);
  auto findings = framework_findings(ref::FindingClass::offload_loss);
  search::find_known_defects(s, timeline, findings, [](const Scenario&, const Timeline&) -> ref::Verdict {
    ADD_FAILURE() << "on numbers";
    return {};
  });
  EXPECT_TRUE(findings[0].too_large);
}

TEST(a_known_defect, is_not_looked_for_with_ranks_that_lack_an_event_of_the_script) {
  Scenario s = of_true_size();
  s.script.insert(s.script.end() - 1, event(ScriptKind::engine_zero_grad));
  s.script[s.script.size() - 2].ranks = {5};
  ASSERT_FALSE(admission_error(s));
  std::set<std::uint32_t> worlds;
  auto findings = framework_findings(ref::FindingClass::offload_loss);
  search::find_known_defects(s, *make_timeline(s), findings, {}, [&](const Scenario& other, const Timeline&) {
    worlds.insert(other.world_size);
    return ref::Verdict{};
  });
  EXPECT_EQ(worlds, (std::set<std::uint32_t>{8, 16, 32, 64, 128}));
}

// ---- releases that do the same --------------------------------------------------------------------------------------------------------

std::string known_of(const std::vector<ref::Finding>& findings) {
  std::string out;
  for (const ref::Finding& f : findings)
    out += f.known ? f.known->entry + " " + f.known->since + " - " + f.known->fixed + "\n" : std::string(f.too_large ? "too large\n" : "none\n");
  return out;
}

// Held to what is found where every release is judged, as if a run read every switch that there is.
TEST(a_known_defect, is_the_same_where_releases_that_do_the_same_are_judged_once) {
  std::size_t compared = 0, runs = 0, runs_of_all = 0;
  for (const auto& [file, findings] : of_the_corpus()) {
    if (++compared % 4 != 0) continue;
    const Scenario s = scenario_at(file);
    const auto timeline = make_timeline(s);
    const auto found = [&](std::size_t& count, bool reads_everything) {
      std::vector<ref::Finding> out = findings;
      for (ref::Finding& f : out) f.known.reset();
      search::find_known_defects(s, *timeline, out, [&](const Scenario& other, const Timeline&) {
        ++count;
        if (reads_everything) SwitchRecorder::note(unplaced);
        return judge(other);
      });
      return known_of(out);
    };
    EXPECT_EQ(found(runs, false), found(runs_of_all, true)) << file;
  }
  EXPECT_GT(runs, 0u);
  EXPECT_LT(2 * runs, runs_of_all) << "hardly any release is spared";
}

TEST(a_known_defect, is_dated_by_the_releases_that_show_it) {
  const auto dates = [](const std::string& file) {
    const auto& findings = of_the_corpus().at(file);
    const auto at = std::find_if(findings.begin(), findings.end(), [](const ref::Finding& f) { return f.known.has_value(); });
    return at == findings.end() ? std::string("unknown") : at->known->entry + " " + at->known->since + " - " + at->known->fixed;
  };
  EXPECT_EQ(dates("deepspeed-7985/boundary-leak-0.18.6.json"), "catalogue-4 0.18.5 - 0.19.0");
  EXPECT_EQ(dates("deepspeed-7981/offload-keeps-only-the-last-0.18.9.json"), "catalogue-1 0.16.0 or before - 0.19.0");
  EXPECT_EQ(dates("deepspeed-7981/managed-ga-4-stage-2-0.17.6.json"), "catalogue-5 0.17.6 - 0.18.3");
  EXPECT_EQ(dates("catalogue/10-unreduced-accumulator.json"), "catalogue-10  - 0.16.0 or before");
  EXPECT_EQ(dates("live/5-unused-in-a-window-stage-2-offload.json").substr(0, 7), "live-5 ");
  EXPECT_EQ(dates("catalogue/53-fp32-accumulation-in-bf16-stage-1.json"), "catalogue-53 0.17.6 - 0.18.5") << "at 0.18.3 another defect hides it";
}

TEST(a_known_defect, is_named_for_every_class_in_which_it_shows) {
  const std::map<std::string, std::string> all{{"catalogue/12-overflow-of-one-rank-stays-private.json", "catalogue-12"},
                                               {"catalogue/19-missing-gradient-shifts.json", "catalogue-19"},
                                               {"catalogue/47-bucket-divided-again.json", "catalogue-47"},
                                               {"catalogue/49-full-bucket-under-the-parameters-dtype.json", "catalogue-49"},
                                               {"catalogue/50-rank-that-owns-no-parameter.json", "catalogue-50"}};
  for (const auto& [file, entry] : all) {
    const auto& findings = of_the_corpus().at(file);
    EXPECT_FALSE(findings.empty()) << file;
    for (const ref::Finding& f : findings) {
      ASSERT_TRUE(f.known) << file << ": " << name_of(f.finding);
      EXPECT_EQ(f.known->entry, entry) << file;
    }
  }
}

// A second way to the same dates: at the last release before and the first one after, the script is as it says.
TEST(a_known_defect, is_shown_by_the_release_that_it_is_dated_from_and_not_by_the_one_that_repairs_it) {
  std::size_t compared = 0;
  for (const auto& [file, findings] : of_the_corpus()) {
    for (const ref::Finding& f : findings) {
      if (!f.known || f.known->since.empty() || f.known->fixed.empty()) continue;
      Scenario s = scenario_at(file);
      if (!s.engine.as_of.switches.empty()) continue;
      s.engine.as_of.base = f.known->since.substr(0, f.known->since.find(' '));
      EXPECT_TRUE(classes(judge(s)).contains(std::string(name_of(f.finding)))) << file << " at " << s.engine.as_of.base;
      s.engine.as_of.base = f.known->fixed;
      if (!admission_error(s) && classes(judge(s)).contains(std::string(name_of(f.finding)))) {  // some releases refuse what went wrong before
        const auto later = explained(s);
        EXPECT_TRUE(std::none_of(later.begin(), later.end(), [&](const ref::Finding& o) { return o.known && o.known->entry == f.known->entry; }))
            << file << " at " << s.engine.as_of.base;
      }
      ++compared;
      break;
    }
  }
  EXPECT_GT(compared, 25u);
}

// As of a real framework, whose few runs find what the model's runs do not.
TEST(a_known_defect, is_none_that_the_model_does_not_show) {
  Scenario s = scenario_at("live/15-unfused-optimizer-reports-the-scaled-norm.json");
  const Timeline timeline = make_timeline(s).value();
  const ref::Verdict found = judge(s);
  ASSERT_EQ(classes(found), std::set<std::string>{"wrong-norm"});
  const auto known = [&](const search::Judge& model) {
    std::vector<ref::Finding> findings = explained(s);
    for (ref::Finding& f : findings) f.known.reset();
    search::find_known_defects(s, timeline, findings, model);
    return findings.front().known.has_value();
  };
  EXPECT_TRUE(known([](const Scenario& other, const Timeline&) { return judge(other); }));
  EXPECT_FALSE(known([](const Scenario&, const Timeline&) { return ref::Verdict{}; }));
}

TEST(a_known_defect, is_none_of_a_clean_script_or_of_usage) {
  Scenario s = base_scenario(2, {8, 8}, Dtype::float32);
  deepspeed_config(s).zero.stage = 2;
  s.script = {repeat(2, without_boundary_calls(3))};
  const auto findings = explained(s);
  ASSERT_FALSE(findings.empty());
  for (const ref::Finding& f : findings) EXPECT_FALSE(f.known) << f.known->entry;
}

// ---- ways out -------------------------------------------------------------------------------------------------------------------------

std::vector<ScriptItem> without_blocks(const std::vector<ScriptItem>& items) {
  std::vector<ScriptItem> out;
  for (ScriptItem item : items) {
    item.items = without_blocks(item.items);
    if (item.kind == ScriptKind::no_sync) out.insert(out.end(), item.items.begin(), item.items.end());
    else out.push_back(std::move(item));
  }
  return out;
}

// What each sentence tells a user to do.
const std::map<std::string, std::function<void(Scenario&)>>& advice() {
  static const std::map<std::string, std::function<void(Scenario&)>> all{
      {"Keep the optimizer on the device, without offload_optimizer.", [](Scenario& s) { deepspeed_config(s).zero.offload_optimizer = OffloadDevice::none; }},
      {"Set overlap_comm to false.", [](Scenario& s) { deepspeed_config(s).zero.overlap_comm = false; }},
      {"Leave out no_sync.", [](Scenario& s) { s.script = without_blocks(s.script); }},
      {"Set bf16.immediate_grad_update to true.", [](Scenario& s) { deepspeed_config(s).bf16.immediate_grad_update = true; }},
      {"Leave out data_types.grad_accum_dtype.", [](Scenario& s) { deepspeed_config(s).grad_accum_dtype.reset(); }},
      {"Set reduce_scatter to false.", [](Scenario& s) { deepspeed_config(s).zero.reduce_scatter = false; }},
      {"Set a static loss_scale.", [](Scenario& s) { deepspeed_config(s).fp16.loss_scale = 8; }},
  };
  return all;
}

TEST(what_avoids_a_defect, does_so_in_every_scenario_that_was_written_for_it) {
  std::map<std::string, std::size_t> tried;
  for (const auto& [file, findings] : of_the_corpus())
    for (const ref::Finding& f : findings) {
      if (!f.known || f.known->avoid.empty()) continue;
      const auto does = advice().find(f.known->avoid);
      ASSERT_NE(does, advice().end()) << f.known->avoid;
      Scenario s = scenario_at(file);
      does->second(s);
      ASSERT_FALSE(admission_error(s)) << file;
      EXPECT_FALSE(classes(judge(s)).contains(std::string(name_of(f.finding)))) << file << ": " << f.known->avoid;
      ++tried[f.known->entry];
    }
  for (const Repair& r : repairs()) {
    if (!r.avoid.empty()) {
      EXPECT_GT(tried[std::string(r.entry)], 0u) << r.entry;
    }
  }
}

}  // namespace
}  // namespace gradledger::testing
