#include "search/campaign/campaign.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

#include "search/campaign/parallel.h"
#include "search/blame/blame.h"
#include "search/campaign/rerun.h"
#include "search/shrink/shape.h"
#include "search/shrink/shrink.h"
#include "sim/base/hash.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"

namespace gradledger::search {
namespace {

constexpr std::uint64_t round_size = 256;  // cases between two checkpoints; fewer at first, so that something is there early
constexpr std::uint64_t round_size_first = 16;
constexpr std::uint64_t round_size_driver = 8;  // likewise, of a real framework
constexpr std::size_t broken_max = 16;
constexpr std::uint64_t look_at_every_event = 8;  // cases of which one is looked at after every event; of the others, what steps apply

// What a round finds out about one case before anything is decided about it.
struct Case {
  std::uint64_t number = 0;
  Scenario scenario;
  Look look;
  std::uint64_t events = 0;
  bool judged = false, decides_on_values = false, not_run = false;
  std::vector<ref::FindingClass> classes;
  std::string broken, nondeterministic;
};

class Campaign {
 public:
  Campaign(const CampaignOptions& options, std::vector<Found> known) : options_(options), next_(options.first), began_(options.first) {
    state_.found = std::move(known);
    if (options_.resume) go_on_from(*options_.resume);
  }

  CampaignState run() {
    const std::uint64_t end = options_.first + options_.cases;
    while (next_ < end && !options_.stop()) {
      const std::uint64_t size = options_.driver ? round_size_driver : std::clamp(next_ - began_, round_size_first, round_size);
      next_ = round(next_, std::min(end, next_ + size));
      options_.progress(state_);
      options_.checkpoint(checkpoint());
    }
    state_.stopped = next_ < end;
    return std::move(state_);
  }

  // The decisions of run() on cases that were run elsewhere.
  Joined join(const std::vector<JudgedCase>& cases, const Counts& together) {
    Joined out;
    for (auto at = cases.begin(); at != cases.end();) {
      next_ += (at->number - next_) / round_size * round_size * (next_ - began_ >= round_size);  // rounds in which nothing was shown
      next_ += std::clamp(next_ - began_, round_size_first, round_size);
      const auto end = std::find_if(at, cases.end(), [&](const JudgedCase& c) { return c.number >= next_; });
      join_round({at, end}, out);
      at = end;
    }
    std::optional<std::string> nondeterminism = std::move(state_.nondeterminism);
    const std::uint64_t dropped = dropped_;
    static_cast<Counts&>(state_) = together;
    state_.nondeterminism = std::move(nondeterminism);
    state_.judged -= std::min(state_.judged, dropped);
    out.state = std::move(state_);
    return out;
  }

 private:
  using ToShrink = std::vector<std::pair<const Case*, ref::FindingClass>>;

  void go_on_from(const Checkpoint& from) {
    static_cast<Counts&>(state_) = from.counts;
    next_ = began_ = from.next;
    alike_ = from.alike;
    shrunk_ = from.shrunk;
    for (const auto& [number, what] : from.broken) state_.broken.push_back({number, what, draw(options_.profile, options_.seed, number)});
  }

  Checkpoint checkpoint() const {
    Checkpoint out{next_, state_, alike_, shrunk_, {}};
    for (const Broken& b : state_.broken) out.broken.emplace_back(b.number, b.what);
    return out;
  }

  // Gives the number of the first case that was not taken: `to`, or where the campaign is to stop.
  std::uint64_t round(std::uint64_t from, std::uint64_t to) {
    std::vector<Case> cases;
    for (std::uint64_t number = from; number < to; ++number)
      if (number % options_.shards == options_.shard) cases.emplace_back().number = number;
    const auto keep = [&](std::size_t first_ones) {
      if (first_ones == cases.size()) return;
      to = cases[first_ones].number;
      cases.resize(first_ones);
    };
    keep(in_parallel(
        cases.size(), options_.jobs, [&](std::size_t i) { cases[i].broken = broken_by([&] { look(cases[i]); }); }, options_.stop));
    for (Case& c : cases) c.judged = c.broken.empty() && to_be_judged(c);
    const auto judge_one = [&](std::size_t i) {
      if (cases[i].judged) cases[i].broken = broken_by([&] { judge(cases[i]); });
    };
    const std::size_t judged = in_parallel(cases.size(), options_.jobs, judge_one, options_.stop);
    for (std::size_t i = judged; i < cases.size(); ++i)
      if (cases[i].look.suspicious) --alike_[cases[i].look.alike];  // not taken, so not counted
    keep(judged);
    ToShrink to_shrink;
    for (const Case& c : cases) take(c, to_shrink);
    const auto small = make_small(to_shrink, [&](const Case& c, ref::FindingClass finding) { return shrink_finding(c.scenario, finding, c.number, options_); });
    if (options_.judged) tell(cases, to_shrink, small);
    return to;
  }

  void join_round(std::span<const JudgedCase> judged, Joined& out) {
    std::vector<Case> cases;
    std::map<std::uint64_t, const JudgedCase*> told;
    for (const JudgedCase& j : judged) {
      Case& c = cases.emplace_back();
      c.number = j.number;
      c.nondeterministic = j.nondeterministic;
      if (j.alike && ++alike_[*j.alike] > options_.judged_of_alike) {
        ++dropped_;
        for (const JudgedCase::Shown& shown : j.shown) out.further.emplace_back(j.number, shown.finding);
        continue;
      }
      c.broken = j.broken;
      if (!c.broken.empty() || !j.shown.empty()) c.scenario = draw(options_.profile, options_.seed, j.number);
      for (const JudgedCase::Shown& shown : j.shown) c.classes.push_back(*ref::finding_class_named(shown.finding));
      told[j.number] = &j;
    }
    ToShrink to_shrink;
    for (const Case& c : cases) take(c, to_shrink);
    std::atomic<std::uint64_t> made_small{0};
    make_small(to_shrink, [&](const Case& c, ref::FindingClass finding) { return as_told(*told.at(c.number), c, finding, made_small); });
    out.made_small += made_small;
  }

  // A shard's smallest scenario is judged again and not believed.
  Found as_told(const JudgedCase& judged, const Case& c, ref::FindingClass finding, std::atomic<std::uint64_t>& made_small) const {
    for (const JudgedCase::Shown& shown : judged.shown) {
      if (shown.finding != name_of(finding)) continue;
      if (!shown.broken.empty()) throw std::runtime_error(shown.broken);
      if (!shown.scenario) break;
      Scenario scenario = *shown.scenario;
      scenario.expect.findings.clear();
      auto found = engine_of(scenario) == engine_of(c.scenario) ? found_in(scenario, finding, options_) : std::nullopt;
      if (!found) break;
      found->number = c.number;
      found->minimal = shown.minimal;
      return std::move(*found);
    }
    ++made_small;
    return shrink_finding(c.scenario, finding, c.number, options_);
  }

  // For whoever joins shards.
  void tell(const std::vector<Case>& cases, const ToShrink& to_shrink, const std::vector<JudgedCase::Shown>& small) const {
    std::size_t at = 0;
    for (const Case& c : cases) {
      JudgedCase out{c.number, std::nullopt, c.broken, c.nondeterministic, {}};
      if (c.judged && c.look.suspicious) out.alike = c.look.alike;
      for (const ref::FindingClass finding : c.classes) {
        const bool was_made_small = at < to_shrink.size() && to_shrink[at] == std::pair(&c, finding);
        out.shown.push_back(was_made_small ? small[at++] : JudgedCase::Shown{std::string(name_of(finding)), std::nullopt, false, ""});
      }
      if (out.alike || !out.shown.empty() || !out.broken.empty() || !out.nondeterministic.empty()) options_.judged(out);
    }
  }

  // Where the campaign is to stop, what is left stays as large as it is: it was found, and is not lost.
  std::vector<JudgedCase::Shown> make_small(const ToShrink& to_shrink, const std::function<Found(const Case&, ref::FindingClass)>& smallest) {
    std::vector<Found> found(to_shrink.size());
    std::vector<JudgedCase::Shown> out(to_shrink.size());
    const auto shrink_one = [&](std::size_t i) {
      const auto& [from_case, finding] = to_shrink[i];
      out[i].finding = name_of(finding);
      out[i].broken = broken_by([&] { found[i] = smallest(*from_case, finding); });
    };
    const auto take_one = [&](std::size_t i) {
      if (!out[i].broken.empty()) {
        report_broken(*to_shrink[i].first, "making a finding small: " + out[i].broken);
        return true;
      }
      out[i].minimal = found[i].minimal;
      if (options_.judged) out[i].scenario = found[i].scenario;
      add(std::move(found[i]));
      return true;
    };
    in_order(to_shrink.size(), options_.jobs, shrink_one, take_one, [] { return false; });
    return out;
  }

  // What broke the simulator or the oracle; empty where nothing did.
  template <class Work>
  static std::string broken_by(Work&& work) {
    try {
      work();
      return "";
    } catch (const RunFailure&) {
      throw;
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  void report_broken(const Case& c, std::string what) {
    if (state_.broken.size() < broken_max) state_.broken.push_back({c.number, std::move(what), c.scenario});
  }

  void look(Case& c) const {
    Drawn drawn = draw_case(options_.profile, options_.seed, c.number);
    c.scenario = std::move(drawn.scenario);
    c.events = drawn.timeline.events.size();
    c.decides_on_values = search::decides_on_values(c.scenario, drawn.timeline.contract);
    if (options_.driver) return;  // a look would cost as much as a judgement
    LookOptions how;
    how.seed = hash_keys({options_.seed, c.number});
    how.factory = options_.factory;
    how.devices = options_.devices;
    how.every_event = mix(c.number) % look_at_every_event == 0;
    c.look = look_at(c.scenario, drawn.timeline, how);
    if (c.number % options_.rerun_every == 0) c.nondeterministic = differs_in_rerun(c.scenario, drawn.timeline, how);
  }

  void judge(Case& c) const {
    const auto timeline = make_timeline(c.scenario);
    std::set<ref::FindingClass> classes;
    try {
      const ref::Verdict verdict = judge_case(c.scenario, *timeline, options_);
      for (const ref::Finding& f : verdict.findings) classes.insert(f.finding);
      if (options_.driver) c.look.compared = verdict.values.elements + verdict.ledger.elements;
    } catch (const driver::NotRun&) {
      c.not_run = true;
    }
    c.classes.assign(classes.begin(), classes.end());
  }

  bool to_be_judged(const Case& c) {
    if (options_.driver) return true;
    if (c.look.suspicious) return ++alike_[c.look.alike] <= options_.judged_of_alike;
    return mix(c.number) % (c.decides_on_values ? std::max(1u, options_.judge_every / 4) : options_.judge_every) == 0;
  }

  void take(const Case& c, ToShrink& to_shrink) {
    ++state_.cases;
    state_.events += c.events;
    state_.rank_events += c.events * c.scenario.world_size;
    state_.operations += c.look.operations;
    state_.compared += c.look.compared;
    state_.suspicious += c.look.suspicious;
    state_.judged += c.judged;
    state_.reruns += !options_.driver && c.number % options_.rerun_every == 0;
    state_.not_run += c.not_run;
    if (!c.broken.empty()) report_broken(c, c.broken);
    if (!c.nondeterministic.empty() && !state_.nondeterminism) state_.nondeterminism = "case " + std::to_string(c.number) + ": " + c.nondeterministic;
    for (const ref::FindingClass finding : c.classes)
      if (++shrunk_[{std::string(name_of(finding)), engine_of(c.scenario)}] <= options_.shrunk_of_class) to_shrink.emplace_back(&c, finding);
  }

  // One whose script a known one of the class is a part of is the known one again.
  void add(Found&& f) {
    const auto same = [&](const Found& known) { return known.finding == f.finding && known.engine == f.engine && is_part_of(known.scenario.script, f.scenario.script); };
    const auto at = std::find_if(state_.found.begin(), state_.found.end(), same);
    if (at != state_.found.end()) {
      ++at->alike;
      return;
    }
    state_.found.push_back(std::move(f));
    options_.found(state_.found.back());
  }

  const CampaignOptions& options_;
  CampaignState state_;
  std::map<std::uint64_t, std::uint32_t> alike_;
  std::map<std::pair<std::string, std::string>, std::uint32_t> shrunk_;
  std::uint64_t next_;         // case
  std::uint64_t began_;        // at this case, of this process
  std::uint64_t dropped_ = 0;  // of the cases that are joined: one campaign over all would not have judged them
};

bool shows(const Scenario& scenario, ref::FindingClass finding, const std::string& engine, const CampaignOptions& options) {
  try {
    if (engine_of(scenario) != engine) return false;
    const auto timeline = make_timeline(scenario);
    const ref::Verdict verdict = judge_case(scenario, *timeline, options);
    return std::any_of(verdict.findings.begin(), verdict.findings.end(), [&](const ref::Finding& f) { return f.finding == finding; });
  } catch (const RunFailure&) {
    throw;
  } catch (const std::exception&) {
    return false;  // another defect, and not the user's
  }
}

// Documented scripts stay such while they get smaller: what they show at a release, the newest code must not report.
bool only_there(const Scenario& scenario, ref::FindingClass finding, const CampaignOptions& options) {
  if (options.driver || !options.profile.as_documented || scenario.engine.as_of == AsOf{}) return true;
  Scenario newest = scenario;
  newest.engine.as_of = {};
  return !admission_error(newest) && !shows(newest, finding, engine_of(newest), options);
}

}  // namespace

CampaignState run_campaign(const CampaignOptions& options, std::vector<Found> known) { return Campaign(options, std::move(known)).run(); }

Joined join_campaigns(const CampaignOptions& options, const std::vector<JudgedCase>& cases, const Counts& together, std::vector<Found> known) {
  return Campaign(options, std::move(known)).join(cases, together);
}

ref::Verdict judge_case(const Scenario& scenario, const Timeline& timeline, const CampaignOptions& options) {
  ref::OracleOptions oracle;
  oracle.seed = options.seed;
  std::unique_ptr<Producer> producer;
  if (options.driver) producer = std::make_unique<driver::DriverProducer>(scenario, timeline, *options.driver, options.seed);
  else producer = make_producer(scenario, timeline, {.engines = options.factory, .devices = options.devices});
  return ref::judge(scenario, timeline, *producer, oracle);
}

bool documented(const Scenario& scenario) { return framework_of(scenario).use_of(scenario, make_timeline(scenario).value()).misuses.empty(); }

Found shrink_finding(const Scenario& scenario, ref::FindingClass finding, std::uint64_t number, const CampaignOptions& options) {
  const std::string engine = engine_of(scenario);
  const bool mended = only_there(scenario, finding, options);
  const bool keeps = options.profile.as_documented && documented(scenario);
  const auto still_shows = [&](const Scenario& s) { return (!keeps || documented(s)) && shows(s, finding, engine, options) && (!mended || only_there(s, finding, options)); };
  const Shrunk shrunk = shrink(scenario, still_shows, {.stop = options.stop});
  auto found = found_in(shrunk.scenario, finding, options);
  ensures(found.has_value(), "what was made small still shows the finding");
  found->number = number;
  found->minimal = shrunk.minimal;
  return std::move(*found);
}

std::optional<Found> found_in(const Scenario& scenario, ref::FindingClass finding, const CampaignOptions& options) {
  const auto timeline = make_timeline(scenario);
  ref::Verdict verdict = judge_case(scenario, *timeline, options);
  // Whose it is follows from the script and the documentation, which the model knows.
  CampaignOptions simulated = options;
  simulated.driver = nullptr;
  assign_blame(scenario, *timeline, verdict.findings, [&](const Scenario& other, const Timeline& its) { return judge_case(other, its, simulated); });
  Found out;
  std::set<std::string> classes;
  for (const ref::Finding& f : verdict.findings) {
    classes.insert(std::string(name_of(f.finding)));
    if (f.finding == finding && out.sentence.empty()) {
      out.sentence = f.sentence;
      out.blame = *f.blame;
      out.detail = f;
      out.pointer = timeline->pointers[timeline->events[f.event].item];
    }
  }
  if (out.sentence.empty()) return std::nullopt;
  out.finding = name_of(finding);
  out.engine = engine_of(scenario);
  out.shape = shape_of(scenario);
  out.events = static_cast<std::uint32_t>(timeline->events.size());
  out.scenario = scenario;
  out.scenario.name = out.finding + "-" + out.engine + "-" + short_hash(out.shape);
  for (const std::string& name : classes) {
    ExpectedFinding expected;
    expected.finding = name;
    out.scenario.expect.findings.push_back(std::move(expected));
  }
  return out;
}

}  // namespace gradledger::search
