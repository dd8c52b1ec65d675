// Two scenarios of which the one follows from the other: what their engines make of gradients is related as the scenarios are. Probes are
// integers and every divisor a power of two, so what must be equal is equal to the last bit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "ref/dtype_facts.h"
#include "ref/ledger.h"
#include "ref/probes.h"
#include "search/shrink/edits.h"
#include "search/draw/generator.h"
#include "search/draw/swarm.h"
#include "sim/base/hash.h"
#include "sim/execution/host_executor.h"
#include "sim/load.h"
#include "sim/scenario/parse.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing::metamorphic {

// ---- cases ------------------------------------------------------------------------------------------------------------------------

// A scenario with what follows from it. Parts refer to each other: it stays where it is.
struct Case {
  explicit Case(Scenario s) : scenario(std::move(s)), timeline(make_timeline(scenario).value()), range(ref::probe_range(scenario, timeline)) {
    const auto refused = admission_error(scenario);
    expects(!refused, "what follows from a scenario is one too");
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  std::uint32_t window_of(std::uint32_t event) const { return timeline.events[event].step; }
  // The numbers of the backwards of a window, in order.
  std::vector<std::uint32_t> backwards_of(std::uint32_t window) const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t b = 0; b < timeline.backwards.size(); ++b)
      if (timeline.backwards[b].step == window) out.push_back(b);
    return out;
  }

  const Scenario scenario;
  const Timeline timeline;
  const ref::ProbeRange range;
};

using Fits = std::function<bool(const Case&)>;

inline bool always(const Case&) { return true; }

// Every sum of a window is exact with all of its contributions at once.
inline bool exact(const Case& c) { return c.range.dyadic && c.range.lit_max >= ref::contributions_max(c.timeline); }

// The first drawn case of the seed that fits, so that nothing is discarded. What no case fits is an error of the test.
inline Scenario drawn(const search::Profile& profile, std::uint64_t seed, const Fits& fits) {
  constexpr std::uint64_t tried_max = 10'000;
  for (std::uint64_t number = 0; number < tried_max; ++number) {
    Scenario scenario = search::draw(profile, seed, number);
    search::unroll(scenario);
    if (fits(Case(scenario))) return scenario;
  }
  throw ContractViolation("some drawn case fits");
}

inline search::Draws draws_of(std::uint64_t seed) { return search::Draws(rc::Random(hash_keys({seed, 0x6d657461u}))); }

inline std::vector<std::uint32_t> shuffled(std::uint32_t count, search::Draws& draws) {
  std::vector<std::uint32_t> out(count);
  for (std::uint32_t i = 0; i < count; ++i) out[i] = i;
  for (std::uint32_t i = count; i > 1; --i) std::swap(out[i - 1], out[draws.below(i)]);
  return out;
}

// Another order than the given one, where there is one.
inline std::vector<std::uint32_t> reordered(std::uint32_t count, search::Draws& draws) {
  std::vector<std::uint32_t> out = shuffled(count, draws);
  if (std::is_sorted(out.begin(), out.end())) std::rotate(out.begin(), out.begin() + (count > 1), out.end());
  return out;
}

// ---- data -------------------------------------------------------------------------------------------------------------------------

// A gradient for each element of each contribution.
using Element = std::function<double(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint32_t element)>;

class ElementSource final : public GradientSource {
 public:
  explicit ElementSource(Element element) : element_(std::move(element)) {}

  void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = element_(backward, rank, parameter, offset + static_cast<std::uint32_t>(i));
  }

 private:
  Element element_;
};

inline double one_of(const GradientSource& source, std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint32_t element) {
  double out = 0;
  source.gradient(backward, rank, parameter, element, {&out, 1});
  return out;
}

// ---- runs -------------------------------------------------------------------------------------------------------------------------

inline Schedule in_order() {
  Schedule schedule;
  schedule.policy = Schedule::Policy::in_order;
  return schedule;
}

// Where a step used a gradient: window, parameter, element.
using Place = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;

inline std::string text_of(const Place& place) { return fmt::format("window {}, element {} of parameter {}", std::get<0>(place), std::get<2>(place), std::get<1>(place)); }

// What was applied, in units of the true gradient: every value that some rank used there.
struct Applied {
  std::map<Place, std::set<double>> values;
  std::string stopped;  // how, where the script did not run to its end
};

class StopSink : public TraceSink {
 public:
  void engine_error(const EngineErrorRecord& r) override { stopped = r.type + ": " + r.message; }
  void deadlock(const DeadlockRecord&) override { stopped = "deadlock"; }
  void mismatch(const MismatchRecord& r) override { stopped = "collectives differ in " + r.what; }

  std::string stopped;
};

class AppliedSink final : public StopSink {
 public:
  explicit AppliedSink(const Case& c) : case_(c) {}

  void observe(const Observation& o) override {
    if (o.role != Role::applied_gradient) return;
    for (const ObservedPiece& piece : o.pieces) {
      if (piece.parameter < 0) continue;
      stored_.resize(piece.numel);
      ref::read_stored(piece.dtype, piece.data, piece.numel, stored_.data());
      for (std::uint32_t i = 0; i < piece.numel; ++i)
        out_.values[{case_.window_of(o.event), static_cast<std::uint32_t>(piece.parameter), piece.parameter_offset + i}].insert(stored_[i] / o.scale);
    }
  }
  Applied taken() {
    out_.stopped = stopped;
    return std::move(out_);
  }

 private:
  const Case& case_;
  Applied out_;
  std::vector<double> stored_;
};

inline Applied applied(const Case& c, const GradientSource& source, const Schedule& schedule = in_order()) {
  HostExecutor executor(c.scenario, c.timeline);
  AppliedSink sink(c);
  RunOptions options;
  options.linear = true;
  options.observe_events = false;
  options.schedule = schedule;
  executor.run(source, options, sink);
  return sink.taken();
}

// ---- ledgers ----------------------------------------------------------------------------------------------------------------------

class KeySink final : public StopSink {
 public:
  KeySink(ref::Ledger& ledger, const Timeline& timeline, bool applied_alone) : ledger_(ledger), due_(timeline), applied_alone_(applied_alone) {}
  void observe(const Observation& o) override {
    const ref::Due due = due_.of(o);
    if (!due.not_due && (o.role == Role::applied_gradient || !applied_alone_)) ledger_.want({o.event, o.at_end, o.rank, std::string(o.buffer)}, due.after);
  }
  void event_done(std::uint32_t rank, std::uint32_t event) override { due_.event_done(rank, event); }

 private:
  ref::Ledger& ledger_;
  ref::DueTracker due_;
  bool applied_alone_;
};

enum class Snapshots { applied, all };

// Every contribution's weight in every element of the snapshots, whatever it should be.
struct Books {
  std::map<ref::SnapshotKey, ref::LedgerEntry> entries;
  std::string stopped;
};

inline Books books(const Case& c, Snapshots which, const Schedule& schedule = in_order()) {
  HostExecutor executor(c.scenario, c.timeline);
  ref::Ledger ledger(c.scenario, c.timeline, c.range);
  KeySink keys(ledger, c.timeline, which == Snapshots::applied);
  RunOptions options;
  options.linear = true;
  options.schedule = schedule;
  // Other data in every contribution, so that what is written shows; in the probes' unit, so that no loss scale makes two sums alike (inf). All of a window
  // have one sign, and those of the next the other: no sum is one that was there before.
  const auto value = [&c](std::uint32_t b, auto... key) {
    const double sign = c.window_of(c.timeline.backwards[b].event) % 2 == 0 ? 1 : -1;
    return sign * c.range.unit * static_cast<double>(64 + hash_keys({std::uint64_t{b}, std::uint64_t{key}...}) % 64);
  };
  executor.run(ElementSource(value), options, keys);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> all;
  for (std::uint32_t b = 0; b < c.timeline.backwards.size(); ++b)
    for (std::uint32_t r = 0; r < c.scenario.world_size; ++r)
      if (c.timeline.backwards[b].micro_batch[r] != no_contribution) all.emplace_back(b, r);
  ledger.decode(executor, schedule, all);
  return {ledger.entries(), keys.stopped};
}

// The weights in one element; what weighs nothing is left out.
using Row = std::map<Contribution, double>;

// The different rows that ranks have of one element of an applied gradient.
using Rows = std::map<Place, std::set<Row>>;

using Rename = std::function<Contribution(const Contribution&)>;
using Move = std::function<Place(const Place&)>;

inline Rows rows_of(const Books& of, const Rename& rename = {}, const Move& move = {}) {
  Rows out;
  for (const auto& [key, entry] : of.entries) {
    if (entry.role != Role::applied_gradient) continue;
    std::vector<std::size_t> run(entry.columns.size(), 0);
    std::uint32_t at = 0;
    for (const ref::ElementRange& range : entry.layout)
      for (std::uint32_t element = range.begin; element < range.end; ++element, ++at) {
        Row row;
        for (std::size_t k = 0; k < entry.columns.size(); ++k) {
          const ref::LedgerColumn& column = entry.columns[k];
          while (column.runs[run[k]].end <= at) ++run[k];
          const double weight = column.runs[run[k]].coefficient;
          if (weight != 0) row[rename ? rename(column.contribution) : column.contribution] = weight;
        }
        const Place place{entry.step, range.parameter, element};
        out[move ? move(place) : place].insert(std::move(row));
      }
  }
  return out;
}

// ---- what differs -----------------------------------------------------------------------------------------------------------------

// One case of a property.
struct Outcome {
  Scenario scenario;
  std::uint64_t compared = 0;  // elements, or snapshots
  std::string difference;      // empty: the property holds

  void differs(const std::string& how) {
    if (difference.empty()) difference = how;
  }
};

template <class Value>
void compare(const std::map<Place, Value>& one, const std::map<Place, Value>& other, std::string_view what, Outcome& into) {
  for (const auto& [place, value] : one) {
    const auto at = other.find(place);
    if (at == other.end() || at->second != value) into.differs(fmt::format("{} differ at {}", what, text_of(place)));
  }
  for (const auto& [place, value] : other)
    if (!one.contains(place)) into.differs(fmt::format("{} are only in one at {}", what, text_of(place)));
  into.compared += one.size();
}

inline void compare(const Applied& one, const Applied& other, Outcome& into) {
  if (!one.stopped.empty() || !other.stopped.empty()) into.differs("stops: " + one.stopped + other.stopped);
  compare(one.values, other.values, "applied values", into);
}

inline void compare(const Rows& one, const Rows& other, Outcome& into) { compare(one, other, "weights", into); }

inline bool same_columns(const ref::LedgerEntry& one, const ref::LedgerEntry& other, std::uint32_t windows_later) {
  const auto same_run = [](const ref::CoefficientRun& a, const ref::CoefficientRun& b) { return a.begin == b.begin && a.end == b.end && a.coefficient == b.coefficient; };
  const auto same_range = [](const ref::ElementRange& a, const ref::ElementRange& b) { return a.parameter == b.parameter && a.begin == b.begin && a.end == b.end; };
  if (one.role != other.role || !std::equal(one.layout.begin(), one.layout.end(), other.layout.begin(), other.layout.end(), same_range)) return false;
  // Where windows are compared each lacks the other's contributions: what weighs nothing is left out.
  const auto weighty = [](const ref::LedgerEntry& entry) {
    std::map<Contribution, const ref::LedgerColumn*> out;
    for (const ref::LedgerColumn& column : entry.columns)
      if (std::any_of(column.runs.begin(), column.runs.end(), [](const ref::CoefficientRun& run) { return run.coefficient != 0; })) out[column.contribution] = &column;
    return out;
  };
  const auto a = weighty(one), b = weighty(other);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const auto& x, const auto& y) {
    Contribution moved = x.first;
    moved.step += windows_later;
    return moved == y.first && std::equal(x.second->runs.begin(), x.second->runs.end(), y.second->runs.begin(), y.second->runs.end(), same_run);
  });
}

// Every snapshot of gradients, on every rank after every event.
inline void compare(const Books& one, const Books& other, Outcome& into, std::uint32_t windows_later = 0) {
  if (!one.stopped.empty() || !other.stopped.empty()) into.differs("stops: " + one.stopped + other.stopped);
  for (const auto& [key, entry] : one.entries) {
    const auto at = other.entries.find(key);
    if (at == other.entries.end() || !same_columns(entry, at->second, windows_later)) into.differs(fmt::format("{} of rank {} at event {}", key.buffer, key.rank, key.event));
  }
  for (const auto& [key, entry] : other.entries)
    if (!one.entries.contains(key)) into.differs(fmt::format("{} of rank {} at event {} is only in one", key.buffer, key.rank, key.event));
  into.compared += one.entries.size();
}

// ---- properties -------------------------------------------------------------------------------------------------------------------

using Property = std::function<Outcome(const search::Profile& profile, std::uint64_t seed)>;

inline search::Profile as_documented(std::string_view as_of = "head", std::initializer_list<std::string_view> variants = {}) {
  search::Profile profile;
  profile.as_documented = true;
  profile.parameters_max = 5;
  profile.as_of.base = as_of;
  for (const std::string_view name : variants) profile.variants.push_back(search::variant_named(name, "").value());
  return profile;
}

// Every drawn case is compared: RapidCheck has nothing to discard, and a case that compares nothing fails.
inline void expect_holds(const Property& property, const search::Profile& profile = as_documented()) {
  std::uint64_t cases = 0, compared = 0;
  EXPECT_TRUE(rc::check([&] {
    const std::uint64_t seed = *rc::gen::noShrink(rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<std::uint64_t>())).as("seed");
    const Outcome outcome = property(profile, seed);
    RC_LOG() << outcome.difference << "\n" << serialise(outcome.scenario);
    RC_ASSERT(outcome.difference.empty());
    RC_ASSERT(outcome.compared > 0u);
    ++cases;
    compared += outcome.compared;
  }));
  EXPECT_GT(cases, 0u);
  ::testing::Test::RecordProperty("cases", static_cast<int>(cases));
  ::testing::Test::RecordProperty("compared", static_cast<int>(compared));
}

// That the property can fail: one of the first cases must, where something is known to be wrong.
inline void expect_fails(const Property& property, const search::Profile& profile) {
  constexpr std::uint64_t seeds = 400;
  for (std::uint64_t seed = 0; seed < seeds; ++seed)
    if (!property(profile, seed).difference.empty()) return;
  ADD_FAILURE() << "the property holds where it must not";
}

}  // namespace gradledger::testing::metamorphic
