// Recordings judged with no engine between: by the oracle alone, and held against its verdict on the engine's run of the same scenario.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <cstdlib>
#include <iostream>

#include <fmt/format.h>

#include "ref/describe.h"
#include "sim/engine/engine.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"
#include "sim/producers/producers.h"
#include "tests/conformance/recordings.h"
#include "tools/conformance/judged/judge.h"
#include "tools/conformance/judged/recorded_producer.h"

namespace gradledger::conform {
namespace {

using ref::FindingClass;

// A finding without what its sentence says.
struct Place {
  FindingClass finding;
  std::uint32_t step, rank;
  auto operator<=>(const Place&) const = default;
};
using Found = std::map<Place, std::set<std::string>>;

std::string text(const Contribution& c) { return fmt::format("{}.{}.{}", c.step, c.rank, c.micro_batch); }

Found found_in(const ref::Verdict& verdict) {
  Found out;
  for (const ref::Finding& f : verdict.findings) {
    std::set<std::string>& contributions = out[{f.finding, f.step, f.rank}];
    for (const ref::Miscounted& m : f.contributions) contributions.insert(text(m.contribution));
  }
  return out;
}

std::string show(const Found& f) {
  std::string out;
  for (const auto& [p, c] : f) out += fmt::format("[{} s{} r{}: {}] ", ref::name_of(p.finding), p.step, p.rank, fmt::join(c, " "));
  return out;
}

ref::Verdict simulated(const Scenario& scenario, const Timeline& timeline) {
  const auto producer = make_producer(scenario, timeline, {.arithmetic = CollectiveArithmetic::gloo_fp32});
  return ref::judge(scenario, timeline, *producer, {.check_streams = false});
}

TEST(zz, dump) {
  for (const char* file : {"stages_1_to_3", "cpu_offload", "bf16_optimizer", "bucket_options", "odd_orders", "fp16_overflow", "rounding", "stage_0", "coalesced_reduction", "unmanaged_accumulation", "contiguous_gradients_off"}) {
    int same = 0, differ = 0;
    for (const RecordedRun& run : runs_of(file)) {
      const auto recording = express(run);
      if (!recording || !recording->refusal.empty()) continue;
      const auto timeline = make_timeline(recording->scenario);
      const Judged alone = judge_alone(*recording);
      const Found a = found_in(alone.verdict), b = found_in(simulated(recording->scenario, *timeline));
      if (a == b) { ++same; continue; }
      ++differ;
      std::cout << file << " " << run.name << " " << run.version << "\n   rec " << show(a) << "\n   sim " << show(b) << "\n";
    }
    std::cout << "TOTAL " << file << " same " << same << " differ " << differ << std::endl;
  }
}

}  // namespace
}  // namespace gradledger::conform
