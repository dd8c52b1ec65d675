#include "audit/effects.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "ref/describe.h"

namespace gradledger::audit {
namespace {

using ref::FindingClass;
using Contributors = std::set<std::pair<std::uint32_t, std::uint32_t>>;  // rank and micro-batch

std::vector<std::uint32_t> listed(const std::set<std::uint32_t>& numbers) { return {numbers.begin(), numbers.end()}; }

std::string micro_batches_text(const std::set<std::uint32_t>& numbers) {
  return fmt::format("{} {}", numbers.size() == 1 ? "micro-batch" : "micro-batches", ref::numbers_text(listed(numbers)));
}

// One kind of thing that happens in one window: to whom, and by how much.
struct Happening {
  Contributors places;
  std::set<double> ratios;       // observed over due
  std::set<std::uint32_t> from;  // stale: windows
  bool in_all_elements = true;
};

struct Window {
  std::map<std::string, Happening> by_kind;
  std::size_t contributions = 0;  // that are due
};

// What rows of one window say of one contribution.
struct Seen {
  bool zero = false, whole = false, more_or_less = false;
  bool own_kept = false, peers_without = false;
  bool misplaced = false;  // in some elements that are not its own
  std::set<double> ratios;
};

class Reading {
 public:
  Reading(const Scenario& scenario, const Timeline& timeline, const ref::Verdict& verdict) : scenario_(scenario), timeline_(timeline), verdict_(verdict) {
    std::map<std::uint32_t, std::map<Contribution, Seen>> seen;
    std::map<std::uint32_t, std::uint64_t> covered;
    for (const ref::AppliedRow& row : verdict.applied) read(row, seen[row.step], covered[row.step]);
    for (const auto& [step, contributions] : seen) {
      Window& window = windows_[step];
      for (const auto& [c, s] : contributions) place(window, c, s);
    }
    for (const Event& event : timeline.events)
      if (event.updates()) closed_.insert(event.step);
  }

  Effects effects() {
    Effects out;
    for (const char* kind : {"lost", "private", "partly lost", "scaled", "stale"}) describe(kind, out);
    others(out);
    out.lost = has("lost");
    out.partly = has("partly lost");
    out.scaled = has("scaled");
    out.stale = has("stale");
    out.kept_private = has("private");
    out.factor = common_factor(out);
    out.verdict = short_verdict(out);
    return out;
  }

 private:
  void read(const ref::AppliedRow& row, std::map<Contribution, Seen>& seen, std::uint64_t& covered) {
    for (const ref::ElementRange& e : row.row.elements) covered += e.end - e.begin;
    for (std::size_t k = 0; k < row.columns.size(); ++k) {
      const Contribution& c = row.columns[k];
      const double expected = row.row.expected[k], observed = row.row.observed[k];
      if (expected == 0 && observed == 0) continue;
      if (expected == 0) {
        Happening& stale = windows_[row.step].by_kind["stale"];
        stale.places.emplace(c.rank, c.micro_batch);
        stale.from.insert(c.step);
        continue;
      }
      Seen& s = seen[c];
      s.misplaced |= row.row.misplaced_at(k);
      if (row.row.misplaced_at(k)) continue;  // neither lost nor counted: a finding says it
      const double ratio = observed / expected;
      s.zero |= ratio == 0;
      s.whole |= ratio == 1;
      s.more_or_less |= ratio != 0 && ratio != 1;
      if (row.rank == c.rank && ratio != 0) s.own_kept = true;
      if (row.rank != c.rank && ratio == 0) s.peers_without = true;
      s.ratios.insert(ratio);
    }
  }

  void place(Window& window, const Contribution& c, const Seen& s) {
    ++window.contributions;
    const char* kind = nullptr;
    if (s.zero && !s.whole && !s.more_or_less && !s.misplaced) kind = "lost";
    else if (s.own_kept && s.peers_without && s.more_or_less) kind = "private";
    else if (s.zero) kind = "partly lost";
    else if (s.more_or_less) kind = "scaled";
    if (!kind) return;
    Happening& h = window.by_kind[kind];
    h.places.emplace(c.rank, c.micro_batch);
    h.ratios.insert(s.ratios.begin(), s.ratios.end());
    h.in_all_elements &= !s.whole && !s.misplaced;
  }

  bool has(const char* kind) const {
    return std::any_of(windows_.begin(), windows_.end(), [&](const auto& w) { return w.second.by_kind.contains(kind); });
  }

  // "micro-batches 1-6 of 8 on every rank"
  std::string places_text(const Contributors& places, std::uint32_t step) const {
    std::map<std::uint32_t, std::set<std::uint32_t>> by_rank;
    for (const auto& [rank, m] : places) by_rank[rank].insert(m);
    std::map<std::set<std::uint32_t>, std::set<std::uint32_t>> ranks_of;
    for (const auto& [rank, numbers] : by_rank) ranks_of[numbers].insert(rank);
    std::string out;
    for (const auto& [numbers, ranks] : ranks_of) {
      const std::uint32_t of = timeline_.micro_batches[step][*ranks.begin()];
      if (numbers.size() == of) out += fmt::format("{}{}", out.empty() ? "" : "; ", of == 1 ? "the micro-batch" : fmt::format("all {} micro-batches", of));
      else out += fmt::format("{}{} ({} of {})", out.empty() ? "" : "; ", micro_batches_text(numbers), numbers.size(), of);
      if (ranks.size() == scenario_.world_size) out += scenario_.world_size == 1 ? "" : " of every rank";
      else out += " of " + ref::numbered("rank", listed(ranks));
    }
    return out;
  }

  std::string windows_text(const std::set<std::uint32_t>& steps) const {
    if (steps == closed_ && steps.size() > 1) return "in every window";
    return "in " + ref::numbered("window", listed(steps));
  }

  static std::string how_much(const std::string& kind, const Happening& h) {
    if (kind == "lost") return "never reaches the update";
    if (kind == "private") return "reaches the update of its own rank alone, undivided by the ranks";
    if (kind == "partly lost") return "is missing in a part of the elements";
    if (kind == "stale") return h.from.size() == 1 ? fmt::format("from window {} is added again", *h.from.begin()) : "from earlier windows is added again";
    if (h.ratios.size() == 1) return fmt::format("counts {} times", ref::weight_text(*h.ratios.begin()));
    return fmt::format("counts {} to {} times", ref::weight_text(*h.ratios.begin()), ref::weight_text(*h.ratios.rbegin()));
  }

  void describe(const char* kind, Effects& out) const {
    // Windows of which the same is to be said; what is stale comes from another window each time.
    std::map<std::pair<Contributors, std::set<double>>, std::set<std::uint32_t>> alike;
    std::map<std::pair<Contributors, std::set<double>>, Happening> sample;
    for (const auto& [step, window] : windows_) {
      const auto found = window.by_kind.find(kind);
      if (found == window.by_kind.end()) continue;
      const std::pair key{found->second.places, found->second.ratios};
      alike[key].insert(step);
      sample.try_emplace(key, found->second);
    }
    for (const auto& [key, steps] : alike) {
      Happening h = sample.at(key);
      if (steps.size() > 1) h.from = {0, 1};  // of each the one before: "earlier windows"
      report::AuditEffect effect{kind, fmt::format("{}, {}: {}", places_text(h.places, *steps.begin()), windows_text(steps), how_much(kind, h)), 0, 0};
      std::set<std::uint32_t> numbers;
      for (const auto& place : h.places) numbers.insert(place.second);
      if (numbers.size() * scenario_.world_size == h.places.size()) {
        effect.micro_batches = static_cast<std::uint32_t>(numbers.size());
        effect.of = timeline_.micro_batches[*steps.begin()][0];
      }
      out.list.push_back(std::move(effect));
    }
  }

  static bool of_weights(FindingClass c) {
    using enum FindingClass;
    return c == discarded_gradient || c == offload_loss || c == boundary_leak || c == stale_gradient || c == duplicated_gradient || c == missing_reduction || c == wrong_scale ||
           c == wrong_group;
  }

  // What is no weight of a contribution, or of a window whose update never showed.
  void others(Effects& out) const {
    std::map<FindingClass, std::uint32_t> counted;
    for (const ref::Finding& f : verdict_.findings) {
      out.stops |= f.finding == FindingClass::engine_error || f.finding == FindingClass::deadlock || f.finding == FindingClass::collective_mismatch;
      if (of_weights(f.finding) && !windows_.empty()) continue;
      out.races |= f.finding == FindingClass::stream_race;
      out.no_update |= f.finding == FindingClass::discarded_gradient;
      out.other = true;
      const std::string name(name_of(f.finding));
      const bool named = f.sentence.starts_with(name + ": ");
      if (counted[f.finding]++ == 0) out.list.push_back({name, named ? f.sentence.substr(name.size() + 2) : f.sentence, 0, 0});
    }
  }

  // Nothing is wrong but one factor, and it is that of everything.
  std::optional<double> common_factor(const Effects& out) const {
    if (!out.scaled || out.lost || out.partly || out.stale || out.kept_private || out.other || windows_.size() != closed_.size()) return std::nullopt;
    std::set<double> ratios;
    for (const auto& [step, window] : windows_) {
      const auto scaled = window.by_kind.find("scaled");
      if (scaled == window.by_kind.end()) return std::nullopt;
      const Happening& h = scaled->second;
      if (h.places.size() != window.contributions || !h.in_all_elements) return std::nullopt;
      ratios.insert(h.ratios.begin(), h.ratios.end());
    }
    return ratios.size() == 1 ? std::optional(*ratios.begin()) : std::nullopt;
  }

  std::string short_verdict(const Effects& out) const {
    if (verdict_.findings.empty()) return verdict_.judged() ? "clean" : "not judged";
    std::string text;
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
    if (out.stops) {
      const bool raises = std::any_of(verdict_.findings.begin(), verdict_.findings.end(), [](const ref::Finding& f) { return f.finding == FindingClass::engine_error; });
      return raises ? "raises" : "hangs";
    }
    if (out.no_update) return "no update";
    for (const report::AuditEffect& e : out.list)
      if (e.kind == "lost") {
        add(e.of > 0 ? fmt::format("loses {} of {}", e.micro_batches, e.of) : "loses some");
        break;
      }
    if (out.kept_private) add("private");
    if (out.partly) add("loses in part");
    if (out.factor) add("x " + ref::weight_text(*out.factor));
    else if (out.scaled) add("wrong scale");
    if (out.stale) add("stale");
    constexpr std::array weights{"lost", "private", "partly lost", "scaled", "stale"};
    for (const report::AuditEffect& e : out.list)
      if (std::find(weights.begin(), weights.end(), e.kind) == weights.end()) add(e.kind == "stream-race" ? "race" : e.kind);
    return text;
  }

  const Scenario& scenario_;
  const Timeline& timeline_;
  const ref::Verdict& verdict_;
  std::map<std::uint32_t, Window> windows_;  // that are wrong
  std::set<std::uint32_t> closed_;
};

}  // namespace

Effects effects_of(const Scenario& scenario, const Timeline& timeline, const ref::Verdict& verdict) { return Reading(scenario, timeline, verdict).effects(); }

}  // namespace gradledger::audit
