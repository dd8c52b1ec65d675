// One scenario judged with the ledger of the symbolic executor and with that of numbers, and in what the two verdicts differ.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/ranges.h>

#include "ref/oracle.h"
#include "sim/producers/producers.h"
#include "sim/scenario/timeline.h"

namespace gradledger::testing {

struct ByTwoExecutors {
  ref::Verdict symbolic, numeric;
  bool planted = false;  // the script plants an overflow
  double rounding = 0;   // of a weight that runs in fp64 tell, relative

  // In words; empty: they say the same. Where elements lie in wrong places, numbers see quotients of probes, some of which look like weights:
  // there both must find that something is wrong, and where, and no more. Memory that nobody wrote has no weights to agree on: both say that it was
  // read, and from there on it depends on the columns what else is named. What a script plants hides weights from numbers alone, and weights
  // that no fraction of 64 bits holds are told by numbers alone.
  std::vector<std::string> differences() const {
    std::vector<std::string> out;
    const std::set<Place> in_symbolic = places(symbolic), in_numeric = places(numeric);
    for (const Place& p : in_numeric)
      if (!in_symbolic.contains(p) && symbolic.inconclusive_rows.total() == 0) out.push_back("only by numbers: " + text(p));
    for (const Place& p : in_symbolic)
      if (!in_numeric.contains(p) && !planted) out.push_back("only symbolic: " + text(p));
    compare_weights(out);
    return out;
  }

  bool finds_something() const { return !symbolic.findings.empty(); }

 private:
  using Place = std::tuple<std::string, std::uint32_t, std::uint32_t>;                                                 // class, step, rank
  using Element = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::string, std::uint32_t, std::uint32_t>;  // step, event, rank, buffer, parameter, element

  // Steps and ranks of which some executor says that elements are out of place.
  std::set<std::pair<std::uint32_t, std::uint32_t>> shuffled() const {
    std::set<std::pair<std::uint32_t, std::uint32_t>> out;
    for (const ref::Verdict* verdict : {&symbolic, &numeric})
      for (const ref::Finding& f : verdict->findings)
        if (f.finding == ref::FindingClass::misplaced_shard) out.emplace(f.step, f.rank);
    return out;
  }

  // The first step in which memory is read that nobody wrote.
  std::uint32_t unwritten_from() const {
    std::uint32_t out = never;
    for (const ref::Verdict* verdict : {&symbolic, &numeric})
      for (const ref::Finding& f : verdict->findings)
        if (f.finding == ref::FindingClass::unwritten_memory) out = std::min(out, f.step);
    return out;
  }

  std::set<Place> places(const ref::Verdict& verdict) const {
    const auto out_of_place = shuffled();
    std::set<Place> out;
    const std::uint32_t unwritten = unwritten_from();
    for (const ref::Finding& f : verdict.findings)
      if (f.step < unwritten || f.finding == ref::FindingClass::unwritten_memory)
        out.emplace(out_of_place.contains({f.step, f.rank}) ? "something" : std::string(name_of(f.finding)), f.step, f.rank);
    return out;
  }

  static std::string text(const Place& p) { return fmt::format("{} in step {} on rank {}", std::get<0>(p), std::get<1>(p), std::get<2>(p)); }

  // By element, weights of contributions; none where the row leaves something open.
  static std::map<Element, std::vector<double>> weights(const ref::Verdict& verdict) {
    std::map<Element, std::vector<double>> out;
    for (const ref::AppliedRow& applied : verdict.applied)
      for (const ref::ElementRange& range : applied.row.elements)
        for (std::uint64_t e = range.begin; e < range.end; ++e) {
          auto& weights = out[{applied.step, applied.event, applied.rank, applied.buffer, range.parameter, e}];
          // A row that balances is listed with its window's contributions alone.
          for (std::size_t k = 0; k < applied.columns.size() && !applied.row.inconclusive; ++k)
            if (applied.row.observed[k] != 0 || applied.row.expected[k] != 0) weights.push_back(applied.row.observed[k]);
        }
    return out;
  }

  // Fractions that are not simple come out of fp64 with its roundings; memory that nobody wrote holds no number.
  bool is_one(double a, double b) const { return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= rounding * std::abs(a); }
  bool are_one(const std::vector<double>& a, const std::vector<double>& b) const {
    const auto unwritten = [](const std::vector<double>& list) { return !list.empty() && std::all_of(list.begin(), list.end(), [](double x) { return std::isnan(x); }); };
    return (unwritten(a) && unwritten(b)) || std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](double x, double y) { return is_one(x, y); });
  }

  void compare_weights(std::vector<std::string>& out) const {
    const auto out_of_place = shuffled();
    const auto a = weights(symbolic), b = weights(numeric);
    for (const auto& [element, held] : b) {
      const auto& [step, event, rank, buffer, parameter, number] = element;
      const auto same = a.find(element);
      const bool told = same == a.end() || !same->second.empty();
      if (held.empty() || !told || planted || out_of_place.contains({step, rank})) continue;
      if (same == a.end()) out.push_back(fmt::format("only numbers list element {} of parameter {} in step {} on rank {}", number, parameter, step, rank));
      else if (!are_one(held, same->second))
        out.push_back(fmt::format("other weights in element {} of parameter {} in step {} on rank {}: {} and by numbers {}", number, parameter, step, rank,
                                  fmt::join(same->second, " "), fmt::join(held, " ")));
    }
  }
};

template <class Made>
ByTwoExecutors judge_by_both(const Workload& workload, const Timeline& timeline, Made&& make, std::uint64_t seed = 0) {
  ByTwoExecutors out;
  // A product and a rounding for each way that a contribution may be scaled, of which there is one for every event at most.
  out.planted = !timeline.planted.empty();
  out.rounding = (8.0 + 2.0 * workload.world_size + 2.0 * static_cast<double>(timeline.events.size())) * std::numeric_limits<double>::epsilon() / 2;
  ref::OracleOptions options;
  options.seed = options.schedule.seed = seed;
  options.full_ledger = true;
  const auto producer = make();
  out.symbolic = ref::judge(workload, timeline, *producer, options);
  options.executor = ref::Executor::numeric;
  const auto again = make();
  out.numeric = ref::judge(workload, timeline, *again, options);
  return out;
}

}  // namespace gradledger::testing
