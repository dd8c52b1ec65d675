// How many drawn scenarios a campaign looks at in a second, what bounds it, and how exhaustive searches and gates over mutants do. One core,
// but for the jobs of the last campaign.
#include <benchmark/benchmark.h>

#include "search/campaign/campaign.h"
#include "search/mutants/hunt.h"
#include "search/sequences/explore.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger {
namespace {

using namespace search;

// Cases of 4 ranks with 15 to 25 events, of all engines, used as documented: nothing to judge, nothing to shrink.
std::vector<Drawn> cases_of_four_ranks(std::size_t count) {
  Profile profile;
  profile.as_documented = true;
  profile.events_max = 24;
  std::vector<Drawn> out;
  for (std::uint64_t number = 0; out.size() < count; ++number) {
    Drawn drawn = draw_case(profile, 0, number);
    if (drawn.scenario.world_size == 4 && drawn.timeline.events.size() >= 15 && drawn.timeline.events.size() <= 25) out.push_back(std::move(drawn));
  }
  return out;
}

void looks_at_cases_of_four_ranks(benchmark::State& state) {
  const std::vector<Drawn> cases = cases_of_four_ranks(500);
  std::uint64_t events = 0, operations = 0, looks = 0;
  for (auto _ : state)
    for (const Drawn& drawn : cases) {
      LookOptions how;
      how.seed = looks++;
      how.every_event = state.range(0) != 0;
      operations += look_at(drawn.scenario, drawn.timeline, how).operations;
      events += drawn.timeline.events.size();
    }
  state.counters["scenarios/s"] = benchmark::Counter(static_cast<double>(looks), benchmark::Counter::kIsRate);
  state.counters["events"] = static_cast<double>(events) / static_cast<double>(looks);
  state.counters["operations"] = static_cast<double>(operations) / static_cast<double>(looks);
}
BENCHMARK(looks_at_cases_of_four_ranks)->ArgName("after_every_event")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void draws(benchmark::State& state) {
  std::uint64_t number = 0;
  for (auto _ : state) benchmark::DoNotOptimize(draw_case({}, 0, number++).timeline.events.size());
  state.counters["scenarios/s"] = benchmark::Counter(static_cast<double>(number), benchmark::Counter::kIsRate);
}
BENCHMARK(draws);

// All that a campaign does: drawing, looking, judging a sample, running some twice.
void campaign_of_documented_scripts(benchmark::State& state) {
  std::uint64_t cases = 0, rank_events = 0;
  CampaignOptions options;
  options.profile.as_documented = true;
  options.cases = 8192;
  options.jobs = static_cast<std::uint32_t>(state.range(0));
  for (auto _ : state) {
    const CampaignState result = run_campaign(options);
    cases += result.cases;
    rank_events += result.rank_events;
  }
  state.counters["scenarios/s"] = benchmark::Counter(static_cast<double>(cases), benchmark::Counter::kIsRate);
  state.counters["rank_events/s"] = benchmark::Counter(static_cast<double>(rank_events), benchmark::Counter::kIsRate);
}
BENCHMARK(campaign_of_documented_scripts)->ArgName("jobs")->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

// Two ranks, the eight events of the engine's alphabet.
void every_sequence_of_seven_events(benchmark::State& state) {
  std::uint64_t states = 0, transitions = 0;
  for (auto _ : state)
    for (const Variant& variant : variants()) {
      ExploreOptions options;
      options.world.name = "world";
      options.world.world_size = 2;
      for (const char* name : {"w0", "w1"}) {
        Parameter p;
        p.name = name;
        p.numel = 4;
        options.world.parameters.push_back(std::move(p));
      }
      deepspeed_config(options.world).gradient_clipping = 0.0;
      variant.apply(options.world);
      for (const std::string& text : search_space_of(options.world).alphabet(options.world)) options.alphabet.push_back(*letter_from(text, 2, ""));
      const ExploreResult result = explore(options);
      expects(result.complete, "every sequence was tried");
      states += result.states;
      transitions += result.transitions;
    }
  state.counters["states"] = benchmark::Counter(static_cast<double>(states), benchmark::Counter::kAvgIterations);
  state.counters["transitions"] = benchmark::Counter(static_cast<double>(transitions), benchmark::Counter::kAvgIterations);
}
BENCHMARK(every_sequence_of_seven_events)->Unit(benchmark::kMillisecond);

void gate_over_all_mutants(benchmark::State& state) {
  std::uint64_t planted = 0, cases = 0;
  for (auto _ : state)
    for (const Mutant& mutant : mutants())
      for (const std::string_view variant : mutant.variants) {
        const Hunt hunted = hunt(mutant, variant, 0, 24);
        expects(hunted.found, "every mutant is found");
        ++planted;
        cases += hunted.cases;
      }
  state.counters["planted"] = benchmark::Counter(static_cast<double>(planted), benchmark::Counter::kAvgIterations);
  state.counters["cases"] = benchmark::Counter(static_cast<double>(cases), benchmark::Counter::kAvgIterations);
}
BENCHMARK(gate_over_all_mutants)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gradledger
