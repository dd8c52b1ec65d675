// Campaigns: the same whatever the jobs, shards that share the cases out, and what must not pass unseen.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "search/campaign/campaign.h"
#include "search/campaign/canary.h"
#include "search/campaign/parallel.h"
#include "search/campaign/rerun.h"
#include "sim/frameworks/deepspeed/legality.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/framework.h"
#include "sim/scenario/parse.h"
#include "tests/support/sanitized.h"
#include "tests/support/scripted_engine.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

using namespace gradledger::search;

CampaignOptions small(std::uint64_t cases = sanitized ? 32 : 96) {
  CampaignOptions options;
  options.profile.as_of.base = "0.18.9";
  options.cases = cases;
  options.shrunk_of_class = 1;
  options.judged_of_alike = 1;
  return options;
}

std::vector<std::string> lines_of(const CampaignState& state) {
  std::vector<std::string> out;
  for (const Found& f : state.found) out.push_back(f.finding + " " + f.engine + " " + std::to_string(f.number) + " " + std::to_string(f.alike) + "\n" + serialise(f.scenario));
  return out;
}

TEST(work_in_parallel, that_is_stopped_has_done_the_first_ones) {
  for (const std::uint32_t jobs : {1u, 4u}) {
    std::vector<std::atomic<int>> done(1000);
    std::atomic<int> begun{0};
    const std::size_t count = in_parallel(
        done.size(), jobs,
        [&](std::size_t i) {
          ++begun;
          ++done[i];
        },
        [&] { return begun > 100; });
    EXPECT_GT(count, 100u);
    EXPECT_LT(count, 200u);
    for (std::size_t i = 0; i < done.size(); ++i) EXPECT_EQ(done[i], i < count ? 1 : 0) << i;
  }
}

TEST(work_in_order, is_taken_in_its_order_until_somebody_has_enough) {
  for (const std::uint32_t jobs : {1u, 4u}) {
    std::vector<std::size_t> taken;
    const auto take = [&](std::size_t i) {
      taken.push_back(i);
      return i < 49;
    };
    EXPECT_EQ(in_order(
                  200, jobs, [](std::size_t i) { std::this_thread::sleep_for(std::chrono::microseconds(i % 7)); }, take, [] { return false; }),
              50u);
    for (std::size_t i = 0; i < taken.size(); ++i) EXPECT_EQ(taken[i], i);
    EXPECT_EQ(taken.size(), 50u);
  }
  EXPECT_THROW(in_order(
                   9, 2, [](std::size_t i) { expects(i != 3, "a failure"); }, [](std::size_t) { return true; }, [] { return false; }),
               ContractViolation);
}

TEST(campaign, finds_the_same_with_one_thread_and_with_three) {
  CampaignOptions options = small();
  const CampaignState one = run_campaign(options);
  options.jobs = 3;
  const CampaignState three = run_campaign(options);
  EXPECT_GE(one.found.size(), sanitized ? 4u : 10u);
  EXPECT_EQ(lines_of(one), lines_of(three));
  EXPECT_EQ(one.events, three.events);
  EXPECT_EQ(one.operations, three.operations);
  EXPECT_EQ(one.judged, three.judged);
}

TEST(campaign, is_shared_out_by_shards_without_rest_or_overlap) {
  CampaignOptions options = small();
  options.cases = 96;
  options.judge_every = 1u << 30;
  options.judged_of_alike = 0;  // counts alone
  const CampaignState whole = run_campaign(options);
  std::uint64_t cases = 0, events = 0, operations = 0, suspicious = 0;
  options.shards = 3;
  for (options.shard = 0; options.shard < 3; ++options.shard) {
    const CampaignState part = run_campaign(options);
    EXPECT_EQ(3 * part.cases, options.cases);
    cases += part.cases;
    events += part.events;
    operations += part.operations;
    suspicious += part.suspicious;
  }
  EXPECT_EQ(cases, whole.cases);
  EXPECT_EQ(events, whole.events);
  EXPECT_EQ(operations, whole.operations);
  EXPECT_EQ(suspicious, whole.suspicious);
}

// Quotas are small, so that shards judge and make small what one campaign would not, and the other way round.
TEST(campaigns_that_are_joined, decide_as_one_over_all_cases) {
  CampaignOptions options = small();
  const CampaignState whole = run_campaign(options);
  std::uint64_t further = 0;
  for (const std::uint32_t shards : {1u, 3u}) {
    std::vector<JudgedCase> cases;
    Counts together;
    CampaignOptions part = options;
    part.shards = shards;
    part.judged = [&](const JudgedCase& judged) { cases.push_back(judged); };
    for (part.shard = 0; part.shard < shards; ++part.shard) {
      const CampaignState state = run_campaign(part);
      together.cases += state.cases;
      together.events += state.events;
      together.rank_events += state.rank_events;
      together.operations += state.operations;
      together.compared += state.compared;
      together.suspicious += state.suspicious;
      together.judged += state.judged;
      together.reruns += state.reruns;
    }
    std::sort(cases.begin(), cases.end(), [](const JudgedCase& a, const JudgedCase& b) { return a.number < b.number; });
    const Joined joined = join_campaigns(options, cases, together);
    EXPECT_EQ(lines_of(joined.state), lines_of(whole)) << shards;
    EXPECT_EQ(static_cast<const Counts&>(joined.state), static_cast<const Counts&>(whole)) << shards;
    if (shards == 1) EXPECT_TRUE(joined.further.empty() && joined.made_small == 0);
    further += joined.further.size();
  }
  EXPECT_GT(further, 0u);
}

// What a shard says is the smallest scenario is judged again, and what it had no reason to make small is made so.
TEST(campaigns_that_are_joined, make_small_what_no_shard_did_and_what_shows_nothing) {
  CampaignOptions options = small(32);
  std::vector<JudgedCase> cases;
  options.judged = [&](const JudgedCase& judged) { cases.push_back(judged); };
  const CampaignState whole = run_campaign(options);
  std::size_t changed = 0;
  for (JudgedCase& judged : cases)
    for (JudgedCase::Shown& shown : judged.shown)
      if (shown.scenario && changed++ < 2) changed == 1 ? shown.scenario->script.clear() : shown.scenario.reset();
  ASSERT_GE(changed, 2u);
  const Joined joined = join_campaigns(options, cases, whole);
  EXPECT_EQ(lines_of(joined.state), lines_of(whole));
  EXPECT_EQ(joined.made_small, 2u);
}

// The rounds of one campaign, in whose order it tells what broke, however far apart the cases are.
TEST(campaigns_that_are_joined, tell_what_broke_in_the_order_of_one) {
  CampaignOptions options = small();
  std::vector<JudgedCase> cases;
  for (const std::uint64_t number : {3ull, 17ull, 5000ull, 70'000ull, 70'001ull}) cases.push_back({number, std::nullopt, "broke", number == 17 ? "here and there" : "", {}});
  const Joined joined = join_campaigns(options, cases, {});
  ASSERT_EQ(joined.state.broken.size(), cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(joined.state.broken[i].number, cases[i].number);
  EXPECT_EQ(joined.state.nondeterminism, "case 17: here and there");
}

TEST(campaign, names_the_case_that_draws_the_finding_again) {
  const CampaignState state = run_campaign(small());
  ASSERT_FALSE(state.found.empty());
  for (std::size_t i = 0; i < state.found.size(); i += 7) {
    const Scenario drawn = draw(small().profile, 0, state.found[i].number);
    const auto timeline = make_timeline(drawn);
    std::set<std::string> classes;
    for (const ref::Finding& f : judge_case(drawn, *timeline, {}).findings) classes.insert(std::string(name_of(f.finding)));
    EXPECT_TRUE(classes.contains(state.found[i].finding));
  }
}

TEST(campaign, does_not_report_again_what_is_known) {
  const CampaignState first = run_campaign(small());
  const CampaignState second = run_campaign(small(), first.found);
  EXPECT_EQ(second.found.size(), first.found.size());
}

TEST(campaign, hands_over_each_finding_once_and_in_an_order_that_no_thread_decides) {
  std::vector<std::string> orders[2];
  for (const std::uint32_t jobs : {1u, 3u}) {
    CampaignOptions options = small();
    options.jobs = jobs;
    std::vector<std::string>& order = orders[jobs == 3];
    options.found = [&](const Found& f) { order.push_back(f.scenario.name); };
    const CampaignState state = run_campaign(options);
    ASSERT_EQ(order.size(), state.found.size());
    for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], state.found[i].scenario.name);
  }
  EXPECT_EQ(orders[0], orders[1]);
}

TEST(campaign, that_is_stopped_while_it_makes_small_keeps_what_it_found) {
  CampaignOptions options = small(16);  // one round
  const auto kinds = [](const CampaignState& state) {
    std::set<std::pair<std::string, std::string>> out;
    for (const Found& f : state.found) out.emplace(f.finding, f.engine);
    return out;
  };
  const auto all = kinds(run_campaign(options));
  ASSERT_GT(all.size(), 2u);
  std::atomic<std::uint64_t> asked{0};
  options.stop = [&] { return ++asked > 2 * options.cases + 20; };  // once for each case looked at and judged, then for each step of making small
  std::size_t large = 0;
  options.found = [&](const Found& f) { large += !f.minimal; };
  const CampaignState state = run_campaign(options);
  EXPECT_EQ(state.cases, options.cases);
  EXPECT_EQ(kinds(state), all) << "one that is as large as it was is a part of no other kind";
  EXPECT_GT(large, 0u);
}

TEST(campaign, that_is_stopped_counts_only_the_cases_that_it_has_taken) {
  CampaignOptions options = small();
  std::atomic<std::uint64_t> asked{0};
  options.stop = [&] { return ++asked > 30; };
  const CampaignState state = run_campaign(options);
  EXPECT_TRUE(state.stopped);
  EXPECT_LT(state.cases, 31u);
}

// Wherever it was stopped, the rest finds what is missing.
TEST(campaign, goes_on_from_a_checkpoint_as_if_nothing_had_come_between) {
  CampaignOptions options = small(sanitized ? 200 : 600);
  options.profile.variants = {*variant_named("zero2-offload", "")};
  const CampaignState whole = run_campaign(options);
  for (const std::uint64_t ended_at : {5u, 150u, 350u, 550u}) {
    if (ended_at > options.cases) break;
    CampaignOptions first = options;
    first.cases = ended_at;
    std::optional<Checkpoint> last;
    first.checkpoint = [&](const Checkpoint& c) { last = c; };
    const CampaignState part = run_campaign(first);
    ASSERT_TRUE(last);
    CampaignOptions rest = options;
    rest.resume = last;
    const CampaignState both = run_campaign(rest, part.found);
    EXPECT_EQ(lines_of(both), lines_of(whole)) << ended_at;
    EXPECT_EQ(static_cast<const Counts&>(both), static_cast<const Counts&>(whole)) << ended_at;
  }
}

TEST(campaign, has_nothing_to_say_of_documented_scripts_at_head) {
  CampaignOptions options;
  options.profile.as_documented = true;
  options.cases = 200;
  const CampaignState state = run_campaign(options);
  EXPECT_EQ(state.suspicious, 0u);
  EXPECT_TRUE(state.found.empty());
  EXPECT_GT(state.judged, 2u);
  EXPECT_GT(state.reruns, 0u);
  EXPECT_FALSE(state.nondeterminism);
  EXPECT_GT(state.compared, 0u);
}

TEST(campaign, reports_a_case_that_breaks_the_simulator_and_goes_on) {
  CampaignOptions options = small(40);
  options.factory = [](const EngineContext& context) -> std::unique_ptr<Engine> {
    expects(context.scenario->world_size != 2, "two ranks are too many");
    return make_engine(context);
  };
  const CampaignState state = run_campaign(options);
  EXPECT_EQ(state.cases, 40u);
  ASSERT_FALSE(state.broken.empty());
  for (const Broken& broken : state.broken) EXPECT_NE(broken.what.find("two ranks are too many"), std::string::npos) << broken.what;
}

// An engine that hears every fourth event twice, counted over all runs: no two runs are alike.
class Forgetful final : public Engine {
 public:
  Forgetful(std::unique_ptr<Engine> inner, std::atomic<std::uint64_t>& calls) : inner_(std::move(inner)), calls_(calls) {}
  std::unique_ptr<Engine> clone() const override { return nullptr; }
  void initialise(ProgramWriter& w) override {
    inner_->initialise(w);
    if (++calls_ % 3 == 0) {
      const BufferId b = w.declare("noise", Dtype::float32, 1);
      w.allocate(b);
      w.fill(w.whole(b), 0.0);
    }
  }
  void handle(const Event& event, ProgramWriter& w) override { inner_->handle(event, w); }
  bool suspended() const override { return inner_->suspended(); }
  void resume(double value, ProgramWriter& w) override { inner_->resume(value, w); }
  void observe(ProgramWriter& w) override { inner_->observe(w); }

 private:
  std::unique_ptr<Engine> inner_;
  std::atomic<std::uint64_t>& calls_;
};

TEST(campaign, sees_an_engine_that_does_not_do_the_same_twice) {
  std::atomic<std::uint64_t> calls{0};
  CampaignOptions options = small(40);
  options.rerun_every = 1;
  options.judged_of_alike = 0;
  options.judge_every = 1u << 30;
  EXPECT_FALSE(run_campaign(options).nondeterminism);
  options.factory = [&](const EngineContext& context) { return std::make_unique<Forgetful>(make_engine(context), calls); };
  const CampaignState state = run_campaign(options);
  ASSERT_TRUE(state.nondeterminism);
  EXPECT_NE(state.nondeterminism->find("two runs of one seed"), std::string::npos) << *state.nondeterminism;
}

TEST(rerun, names_the_first_step_at_which_two_runs_part) {
  RunSummary one, other;
  one.decision_hashes = {1, 2, 3, 4};
  other.decision_hashes = {1, 2, 9, 4};
  EXPECT_EQ(first_parting(one, other), "two runs of one seed part at step 2 of 4 of the schedule");
  other.decision_hashes = {1, 2};
  EXPECT_EQ(first_parting(one, other), "two runs of one seed take 4 and 2 steps of the schedule");
  other.decision_hashes = one.decision_hashes;
  EXPECT_EQ(first_parting(one, other), "");
  other.trace_hash = 7;
  EXPECT_EQ(first_parting(one, other), "two runs of one seed end with different traces");
}

TEST(look, with_memory_used_again_is_the_look_without) {
  for (std::uint64_t number = 0; number < 200; ++number) {
    const Drawn drawn = draw_case({}, 21, number);
    LookOptions how;
    how.seed = number;
    const Look again = look_at(drawn.scenario, drawn.timeline, how);
    Look fresh;
    std::thread([&] { fresh = look_at(drawn.scenario, drawn.timeline, how); }).join();  // a thread has memory of its own
    EXPECT_EQ(again.trace_hash, fresh.trace_hash) << number;
    EXPECT_EQ(again.suspicious, fresh.suspicious) << number;
    EXPECT_EQ(again.alike, fresh.alike) << number;
  }
}

// What probes see is what the oracle reports, where it reports what probes can see.
TEST(look, passes_by_no_case_in_which_the_ledger_does_not_balance) {
  std::size_t wrong = 0;
  for (std::uint64_t number = 0; number < 250; ++number) {
    Profile profile;
    profile.as_of.base = "0.18.6";
    const Drawn drawn = draw_case(profile, 8, number);
    LookOptions how;
    how.seed = number;
    const Look look = look_at(drawn.scenario, drawn.timeline, how);
    const ref::Verdict verdict = judge_case(drawn.scenario, drawn.timeline, {});
    const bool lost = std::any_of(verdict.findings.begin(), verdict.findings.end(), [](const ref::Finding& f) { return f.finding <= ref::FindingClass::misplaced_shard; });
    wrong += lost;
    // One pass of two may miss what is dark in it; nothing is dark where all contributions are lit at once.
    const ref::ProbeRange range = ref::probe_range(drawn.scenario, drawn.timeline);
    if (range.dyadic && range.lit_max >= ref::contributions_max(drawn.timeline) && lost) {
      EXPECT_TRUE(look.suspicious) << serialise(drawn.scenario) << verdict.findings.front().sentence;
    }
  }
  EXPECT_GT(wrong, 50u);
}

TEST(canary, is_found_by_both_kinds_of_campaign) {
  for (std::uint64_t seed = 0; seed < 3; ++seed)
    for (const auto cases : {cases_until_canary(seed), cases_until_differ_canary(seed)}) {
      ASSERT_TRUE(cases);
      EXPECT_LE(*cases, canary_cases_max);
    }
}

// Made small without regard to what is documented, the loss would be that of two backwards and no boundary, which the newest code has too.
TEST(campaign, of_documented_scripts_keeps_them_such_while_they_get_smaller) {
  CampaignOptions options;
  options.profile.as_of.base = "0.18.9";
  options.profile.as_documented = true;
  Scenario s = base_scenario(2, {8, 8}, Dtype::bfloat16);
  s.engine.as_of.base = "0.18.9";
  deepspeed_config(s).zero.stage = 2;
  deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
  s.script = {repeat(2, with_boundary_calls(2))};
  EXPECT_EQ(shrink_finding(s, ref::FindingClass::offload_loss, 0, options).shape, "1 rank: boundary(F) backward boundary(T) backward");
  options.profile.as_documented = false;
  EXPECT_EQ(shrink_finding(s, ref::FindingClass::offload_loss, 0, options).shape, "1 rank: backward backward");
}

}  // namespace
}  // namespace gradledger::testing
