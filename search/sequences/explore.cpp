#include "search/sequences/explore.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "search/campaign/parallel.h"
#include "search/shrink/shape.h"
#include "search/sequences/state_key.h"
#include "sim/base/hash.h"
#include "sim/frameworks/search_space.h"
#include "sim/load.h"
#include "sim/scenario/layout.h"

namespace gradledger::search {
namespace {

// What became of one event tried in one state.
struct Tried {
  Word word;
  bool refused = false, mirrored = false, undocumented = false, wrong = false, not_run = false;
  std::uint64_t alike = 0, elements = 0;
  StateKey key;
};

class Explorer {
 public:
  explicit Explorer(const ExploreOptions& options) : options_(options) {
    expects(select_engine(options_.world).ok(), "a world is explored that was not admitted");
    calls_ = search_space_of(options_.world).calls(options_.world);
    out_.symmetric = ranks_are_alike();
    range_ = widest_range();
  }

  ExploreResult run() {
    std::vector<Word> frontier{{}};
    for (std::uint32_t length = 1; length <= options_.length && !frontier.empty(); ++length) {
      std::vector<Word> next;
      // A level at a time, so that what is found first is shortest; in stretches, so that somebody may stop it.
      constexpr std::size_t stretch = 512;
      for (std::size_t from = 0; from < frontier.size(); from += stretch) {
        if (options_.stop() || out_.states >= options_.states_max) return std::move(out_);
        if (!expand({frontier.begin() + static_cast<std::ptrdiff_t>(from), frontier.begin() + static_cast<std::ptrdiff_t>(std::min(frontier.size(), from + stretch))}, length,
                    next))
          return std::move(out_);
        options_.progress(out_);
      }
      frontier = std::move(next);
    }
    out_.complete = true;
    return std::move(out_);
  }

 private:
  // False where it was stopped: then only the first sequences were tried.
  bool expand(const std::vector<Word>& words, std::uint32_t length, std::vector<Word>& next) {
    std::vector<Tried> tried(words.size() * options_.alphabet.size());
    const auto try_one = [&](std::size_t i) {
      tried[i].word = words[i / options_.alphabet.size()];
      tried[i].word.push_back(static_cast<std::uint8_t>(i % options_.alphabet.size()));
      attempt(tried[i]);
    };
    const std::size_t done = in_parallel(tried.size(), options_.jobs, try_one, options_.stop);
    const bool all = done == tried.size();
    tried.resize(done);
    take(tried, length, next);
    return all;
  }

  void take(std::vector<Tried>& tried, std::uint32_t length, std::vector<Word>& next) {
    for (Tried& t : tried) {
      if (t.refused || t.not_run) {
        ++(t.refused ? out_.refused : out_.not_run);
        continue;
      }
      if (t.mirrored) {
        ++out_.mirrored;
        continue;
      }
      if (t.undocumented) {
        ++out_.undocumented;
        continue;
      }
      ++out_.transitions;
      out_.elements += t.elements;
      out_.depth = length;
      if (t.wrong) {
        ++out_.wrong;
        if (looks_.insert(t.alike).second) name(t.word);
        continue;
      }
      if (options_.merge_states && !options_.driver && !seen_.insert(t.key).second) {
        ++out_.merged;
        continue;
      }
      ++out_.states;
      next.push_back(std::move(t.word));
    }
  }

  void attempt(Tried& t) const {
    if (out_.symmetric && !canonical_in_ranks(options_.alphabet, t.word)) {
      t.mirrored = true;
      return;
    }
    auto script = script_of(options_.alphabet, t.word, *calls_);
    if (!script) {
      t.refused = true;
      return;
    }
    Scenario scenario = options_.world;
    scenario.script = std::move(*script);
    Timeline timeline = make_timeline(scenario).value();
    const std::uint32_t open = open_blocks(options_.alphabet, t.word);
    if (open > 0) leave_open(timeline);
    const UseReport use = options_.as_documented ? framework_of(scenario).use_of(scenario, timeline) : UseReport{};
    if (!use.misuses.empty()) {
      t.undocumented = true;
      return;
    }
    if (options_.driver) return judge(scenario, t);
    LookOptions look;
    look.seed = options_.seed;
    look.check_streams = false;
    look.range = range_;
    look.window_period = window_period;
    look.after = [&](const Simulation& run) {
      const bool ended = std::all_of(run.ranks().begin(), run.ranks().end(), [](const Rank& r) { return r.finished; });
      if (ended && options_.merge_states) t.key = state_key(scenario, timeline, run.ranks(), open, use.state);
    };
    const Look seen = look_at(scenario, timeline, look);
    t.wrong = seen.suspicious;
    t.alike = seen.alike;
    t.elements = seen.compared;
  }

  // A real framework: as a script that closes its blocks, by the whole oracle.
  void judge(const Scenario& scenario, Tried& t) const {
    try {
      const ref::Verdict verdict = judge_case(scenario, make_timeline(scenario).value(), campaign());
      t.wrong = !verdict.findings.empty();
      t.elements = verdict.ledger.elements + verdict.values.elements;
      for (const std::uint8_t letter : t.word) t.alike = mix(t.alike ^ (letter + 1u));
    } catch (const driver::NotRun&) {
      t.not_run = true;
    }
  }

  CampaignOptions campaign() const {
    CampaignOptions out;
    out.seed = options_.seed;
    out.driver = options_.driver;
    return out;
  }

  // The script closes its last block; the word does not.
  static void leave_open(Timeline& timeline) {
    const auto exit = static_cast<std::uint32_t>(timeline.events.size() - 1);
    timeline.events.pop_back();
    std::erase(timeline.reductions, exit);
    std::erase(timeline.boundaries, exit);
  }

  // By the whole oracle, as a script that closes its blocks.
  void name(const Word& word) {
    Scenario scenario = options_.world;
    scenario.script = *script_of(options_.alphabet, word, *calls_);
    const auto timeline = make_timeline(scenario);
    const CampaignOptions how = campaign();
    std::set<ref::FindingClass> classes;
    for (const ref::Finding& f : judge_case(scenario, *timeline, how).findings) classes.insert(f.finding);
    for (const ref::FindingClass c : classes) {
      const auto contains_known = [&](const Word& known) { return is_part_of(known, word); };
      std::vector<Word>& known = named_[c];
      if (std::any_of(known.begin(), known.end(), contains_known)) continue;
      known.push_back(word);
      if (auto found = found_in(scenario, c, how)) out_.found.push_back(std::move(*found));
    }
  }

  // Whether leaving out letters of the longer one gives the shorter.
  static bool is_part_of(const Word& shorter, const Word& longer) {
    std::size_t at = 0;
    for (const std::uint8_t letter : longer) at += at < shorter.size() && shorter[at] == letter;
    return at == shorter.size();
  }

  // Room for all events of the length to be backwards of one window, so that a contribution's probe is the same in every sequence.
  ref::ProbeRange widest_range() const {
    Scenario scenario = options_.world;
    ScriptItem backwards;
    backwards.kind = ScriptKind::backward;
    backwards.micro_batches = options_.length;
    scenario.script = {backwards};
    const auto timeline = make_timeline(scenario);
    ref::ProbeRange range = ref::probe_range(scenario, *timeline);
    const std::uint32_t all = ref::contributions_max(*timeline), room = range.lit_max * range.value_max;
    range.lit_max = all;
    range.value_max = std::max(1u, room / all);
    return range;
  }

  // Partitions of equal size, nothing that names a rank, and no groups: renaming ranks renames elements, no more.
  bool ranks_are_alike() const {
    const Scenario& s = options_.world;
    const bool even = std::all_of(s.parameters.begin(), s.parameters.end(), [&](const Parameter& p) { return p.numel % (2 * s.world_size) == 0 && !p.used_by && !p.expert; });
    return even && s.engine.pipeline_stages == 1 && s.engine.expert_parallel_size == 1 && s.engine.sequence_parallel_size == 1;
  }

  const ExploreOptions& options_;
  std::unique_ptr<Calls> calls_;
  ref::ProbeRange range_;
  ExploreResult out_;
  std::set<StateKey> seen_;
  std::set<std::uint64_t> looks_;
  std::map<ref::FindingClass, std::vector<Word>> named_;
};

}  // namespace

ExploreResult explore(const ExploreOptions& options) { return Explorer(options).run(); }

}  // namespace gradledger::search
