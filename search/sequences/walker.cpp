#include "search/sequences/walker.h"

#include <algorithm>
#include <utility>

#include "sim/base/hash.h"
#include "sim/frameworks/search_space.h"
#include "sim/load.h"

namespace gradledger::search {
namespace {

// Room for all events of the length to be backwards of one window, so that a contribution's probe is the same in every sequence.
ref::ProbeRange widest_range(const ExploreOptions& options) {
  Scenario scenario = options.world;
  ScriptItem backwards;
  backwards.kind = ScriptKind::backward;
  backwards.micro_batches = options.length * backwards_max(options.alphabet);
  scenario.script = {backwards};
  const auto timeline = make_timeline(scenario);
  ref::ProbeRange range = ref::probe_range(scenario, *timeline);
  const std::uint32_t all = ref::contributions_max(*timeline), room = range.lit_max * range.value_max;
  range.lit_max = all;
  range.value_max = std::max(1u, room / all);
  return range;
}

// The script closes its last block; the word does not.
void leave_open(Timeline& timeline) {
  const auto exit = static_cast<std::uint32_t>(timeline.events.size() - 1);
  timeline.events.pop_back();
  std::erase(timeline.reductions, exit);
  std::erase(timeline.boundaries, exit);
}

bool has_direct(const std::vector<Letter>& alphabet) {
  return std::any_of(alphabet.begin(), alphabet.end(), [](const Letter& letter) { return letter.item.kind == ScriptKind::backward && letter.item.direct; });
}

}  // namespace

Walker::Walker(const ExploreOptions& options, bool symmetric)
    : options_(options),
      symmetric_(symmetric),
      calls_(search_space_of(options.world).calls(options.world)),
      range_(widest_range(options)),
      scenario_(options.world),
      writer_(*calls_, scenario_.script) {
  scenario_.script.clear();
  // Engines are made once for all words, and ask then whether the script calls loss.backward() anywhere.
  engines_ = [this, made = engine_factory(scenario_)](const EngineContext& context) {
    const std::size_t events = timeline_.events.size();
    if (has_direct(options_.alphabet)) timeline_.events.emplace_back().body = events::Backward{.direct = true};
    auto engine = made(context);
    timeline_.events.resize(events);
    return engine;
  };
}

Tried Walker::attempt(WordView parent, std::uint8_t letter) {
  go_to(parent);
  Tried tried{Tried::As::refused};
  word_.push_back(letter);
  if (symmetric_ && !canonical_in_ranks(options_.alphabet, word_)) {
    tried.as = Tried::As::mirrored;
  } else if (writer_.add(options_.alphabet[letter])) {
    tried = tried_here();
    writer_.take_away();
  }
  word_.pop_back();
  return tried;
}

Tried Walker::tried_here() {
  Tried tried;
  unroll();
  const UseReport use = options_.as_documented ? framework_of(scenario_).use_of(scenario_, timeline_) : UseReport{};
  tried.as = use.misuses.empty() ? Tried::As::state : Tried::As::undocumented;
  if (!use.misuses.empty()) return tried;
  if (options_.driver) {
    judge(tried);
    return tried;
  }
  make_room();
  stand_at_end_of_path(scratch_);
  const Look seen = run(scratch_, [&](const Simulation& run) {
    const bool ended = std::all_of(run.ranks().begin(), run.ranks().end(), [](const Rank& r) { return r.finished; });
    if (ended && options_.merge_states) tried.key = state_key(scenario_, timeline_, run.ranks(), writer_.in_block() ? 1 : 0, use.state);
  });
  if (seen.suspicious) tried.as = Tried::As::wrong;
  tried.alike = seen.alike;
  tried.elements = seen.compared;
  return tried;
}

void Walker::unroll() {
  timeline_ = make_timeline(scenario_).value();
  if (writer_.in_block()) leave_open(timeline_);
}

// Engines size buckets by the backwards of the whole script, and the ranks of a word become those of longer ones: as many as there can be, of which nobody runs
// those that are not there yet.
void Walker::make_room() {
  Backward of_nobody;
  of_nobody.event = never;
  of_nobody.step = of_nobody.documented = timeline_.steps - 1;
  of_nobody.micro_batch.assign(scenario_.world_size, no_contribution);
  const std::vector<std::uint32_t> kept(scenario_.world_size, never);
  const std::size_t room = std::max<std::size_t>(std::size_t{options_.length} * backwards_max(options_.alphabet), timeline_.backwards.size());
  timeline_.backwards.resize(room, of_nobody);
  timeline_.dropped_at.resize(room, kept);
  if (!timeline_.dropped_documented.empty()) timeline_.dropped_documented.resize(room, kept);
}

// Where words come in their order, most of the path is there.
void Walker::go_to(WordView word) {
  const auto same = static_cast<std::size_t>(std::mismatch(word_.begin(), word_.end(), word.begin(), word.end()).first - word_.begin());
  for (std::size_t longer = word_.size(); longer > same; --longer) writer_.take_away();
  word_.resize(same);
  stands_.resize(std::min(stands_.size(), same));
  while (word_.size() < word.size()) {
    const std::uint8_t letter = word[word_.size()];
    expects(writer_.add(options_.alphabet[letter]), "a word goes on behind one that is refused");
    word_.push_back(letter);
    if (options_.driver) continue;
    unroll();
    make_room();
    Stand stand;
    stand_at_end_of_path(stand);
    run(stand, {});
    stands_.push_back(std::move(stand));
  }
}

void Walker::stand_at_end_of_path(Stand& stand) const {
  if (stands_.empty()) {
    stand = {};
    return;
  }
  const Stand& end = stands_.back();
  stand.ranks.resize(end.ranks.size());
  for (std::size_t r = 0; r < end.ranks.size(); ++r) stand.ranks[r].become(end.ranks[r]);
  stand.seen = end.seen;
  stand.events = end.events;
}

Look Walker::run(Stand& stand, const std::function<void(const Simulation&)>& after) {
  LookOptions look;
  look.seed = options_.seed;
  look.factory = engines_;
  look.check_streams = false;
  look.range = range_;
  look.window_period = window_period;
  look.after = after;
  look.stand = &stand;
  return look_at(scenario_, timeline_, look);
}

// A real framework: as a script that closes its blocks, by the whole oracle.
void Walker::judge(Tried& tried) {
  try {
    CampaignOptions how;
    how.seed = options_.seed;
    how.driver = options_.driver;
    const ref::Verdict verdict = judge_case(scenario_, make_timeline(scenario_).value(), how);
    if (!verdict.findings.empty()) tried.as = Tried::As::wrong;
    tried.elements = verdict.ledger.elements + verdict.values.elements;
    for (const std::uint8_t letter : word_) tried.alike = mix(tried.alike ^ (letter + 1u));
  } catch (const driver::NotRun&) {
    tried.as = Tried::As::not_run;
  }
}

}  // namespace gradledger::search
