// The simulator as a producer that is run a few times only, and what such a verdict has that one of many runs has not.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "ref/oracle.h"
#include "sim/producers/producers.h"

namespace gradledger::testing {

// Claims few runs, no fp64, and counts.
class FewRunsProducer final : public Producer {
 public:
  explicit FewRunsProducer(Producer& inner) : inner_(inner) {}

  std::string_view name() const override { return "few runs"; }
  Capabilities capabilities() const override { return {.applied_gradients = true, .accumulators = true, .few_runs = true}; }
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override {
    ++runs_;
    return inner_.run(source, options, sink);
  }
  std::uint32_t runs() const { return runs_; }

 private:
  Producer& inner_;
  std::uint32_t runs_ = 0;
};

struct JudgedInFew {
  ref::Verdict verdict;
  std::uint32_t runs = 0;
};

inline JudgedInFew judged_in_few(const Workload& workload, const Timeline& timeline, Producer& producer, const ref::OracleOptions& options = {}) {
  FewRunsProducer few(producer);
  ref::Verdict verdict = ref::judge(workload, timeline, few, options);
  return {std::move(verdict), few.runs()};
}

inline JudgedInFew judged_in_few(const Scenario& scenario) {
  const Timeline timeline = make_timeline(scenario).value();
  const auto producer = make_producer(scenario, timeline);
  return judged_in_few(scenario, timeline, *producer);
}

using Place = std::tuple<std::string, std::uint32_t, std::uint32_t>;  // class, step, rank

struct TwoVerdicts {
  ref::Verdict full, few;
  std::uint32_t runs = 0;

  static std::set<Place> places(const ref::Verdict& verdict) {
    std::set<Place> out;
    for (const ref::Finding& f : verdict.findings) out.emplace(name_of(f.finding), f.step, f.rank);
    return out;
  }
  bool same() const { return places(full) == places(few); }

  // Whether the weights of the snapshot that a finding is of stayed open.
  bool is_open(const ref::Finding& finding) const {
    return finding.finding == ref::FindingClass::rounding_excess && std::any_of(few.unexplained.begin(), few.unexplained.end(), [&](const ref::SnapshotKey& key) {
             return key.event == finding.event && key.rank == finding.rank && key.buffer == finding.buffer;
           });
  }
  bool told_open() const {
    return std::any_of(few.findings.begin(), few.findings.end(), [&](const ref::Finding& f) { return is_open(f); });
  }

  // Classes that the few runs name and the many do not. That weights stay open is said of a snapshot, and names none.
  std::set<std::string> invented() const {
    std::set<std::string> named, out;
    for (const ref::Finding& f : full.findings) named.emplace(name_of(f.finding));
    for (const ref::Finding& f : few.findings)
      if (!named.contains(std::string(name_of(f.finding))) && !is_open(f)) out.emplace(name_of(f.finding));
    return out;
  }

  // "-" what the few runs lack, "+" what they have beside: class, step and rank.
  std::vector<std::string> differences() const {
    std::vector<std::string> out;
    const std::set<Place> of_full = places(full), of_few = places(few);
    const auto text = [](char sign, const Place& p) { return fmt::format("{}{} step {} rank {}", sign, std::get<0>(p), std::get<1>(p), std::get<2>(p)); };
    for (const Place& p : of_full)
      if (!of_few.contains(p)) out.push_back(text('-', p));
    for (const Place& p : of_few)
      if (!of_full.contains(p)) out.push_back(text('+', p));
    return out;
  }

  // Findings of one class and place, in one buffer, whose contributions are not the same, though both name some.
  std::vector<std::string> other_contributions() const {
    std::vector<std::string> out;
    for (const ref::Finding& a : full.findings)
      for (const ref::Finding& b : few.findings) {
        if (a.finding != b.finding || a.step != b.step || a.rank != b.rank || a.event != b.event || a.buffer != b.buffer || a.contributions.empty() || b.contributions.empty())
          continue;
        std::set<Contribution> in_a, in_b;
        for (const ref::Miscounted& m : a.contributions) in_a.insert(m.contribution);
        for (const ref::Miscounted& m : b.contributions) in_b.insert(m.contribution);
        if (b.open.empty() ? in_a != in_b : !std::includes(in_a.begin(), in_a.end(), in_b.begin(), in_b.end())) out.push_back(a.sentence + "\n    " + b.sentence);
      }
    return out;
  }
};

// alone_max: contributions of which each gets a run of its own where the few leave weights open. 0: what the few tell by themselves.
template <class Made>
TwoVerdicts judge_twice(const Workload& workload, const Timeline& timeline, Made&& make, std::uint64_t seed = 0, std::uint32_t alone_max = 0) {
  TwoVerdicts out;
  ref::OracleOptions options;
  options.seed = options.schedule.seed = seed;
  options.alone_max = alone_max;
  const auto producer = make();
  out.full = ref::judge(workload, timeline, *producer, options);
  const auto again = make();
  JudgedInFew few = judged_in_few(workload, timeline, *again, options);
  out.few = std::move(few.verdict);
  out.runs = few.runs;
  return out;
}

}  // namespace gradledger::testing
