// Runs in fp64 follow the same contributions to the same places as runs in the program's own formats, where these are exact.
#include <gtest/gtest.h>

#include "ref/ledger.h"
#include "search/draw/generator.h"
#include "sim/execution/host_executor.h"
#include "sim/load.h"

namespace gradledger {
namespace {

// Which snapshots of applied and reduced gradients there are.
class Keys final : public TraceSink {
 public:
  void observe(const Observation& o) override {
    if (o.role == Role::applied_gradient || o.role == Role::reduced_accumulator) all.push_back({o.event, o.at_end, o.rank, std::string(o.buffer)});
  }
  std::vector<ref::SnapshotKey> all;
};

ref::Ledger decoded(const Scenario& scenario, const Timeline& timeline, const ref::ProbeRange& range) {
  HostExecutor producer(scenario, timeline);
  Keys keys;
  producer.run(ref::FingerprintSource(timeline, range, 1), {.linear = true, .wide = range.wide}, keys);
  ref::Ledger out(scenario, timeline, range);
  for (const ref::SnapshotKey& key : keys.all) out.want(key);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> contributions;
  for (std::uint32_t b = 0; b < timeline.backwards.size(); ++b)
    for (std::uint32_t r = 0; r < scenario.world_size; ++r)
      if (timeline.backwards[b].micro_batch[r] != no_contribution) contributions.emplace_back(b, r);
  out.decode(producer, {}, contributions);
  return out;
}

TEST(a_run_in_fp64, weighs_every_contribution_as_the_formats_do_where_they_are_exact) {
  std::size_t compared = 0;
  search::Profile profile;
  profile.as_documented = true;  // elements out of place are quotients of other probes
  for (std::uint64_t number = 0; number < 250; ++number) {
    const search::Drawn drawn = search::draw_case(profile, 11, number);
    const ref::ProbeRange native = ref::probe_range(drawn.scenario, drawn.timeline);
    if (!native.dyadic || !drawn.timeline.planted.empty()) continue;
    const ref::Ledger in_formats = decoded(drawn.scenario, drawn.timeline, native), in_fp64 = decoded(drawn.scenario, drawn.timeline, ref::wide_range(drawn.timeline));
    ASSERT_EQ(in_formats.entries().size(), in_fp64.entries().size());
    for (const auto& [key, entry] : in_formats.entries()) {
      const ref::LedgerEntry& other = in_fp64.entries().at(key);
      ASSERT_EQ(entry.columns.size(), other.columns.size());
      for (std::size_t k = 0; k < entry.columns.size(); ++k) {
        const auto &a = entry.columns[k].runs, &b = other.columns[k].runs;
        ASSERT_EQ(a.size(), b.size()) << "case " << number << ", " << key.buffer << " at event " << key.event;
        for (std::size_t i = 0; i < a.size(); ++i, ++compared) {
          EXPECT_EQ(a[i].end, b[i].end);
          EXPECT_EQ(a[i].coefficient, b[i].coefficient) << "case " << number << ", " << key.buffer << " at event " << key.event;
        }
      }
    }
  }
  EXPECT_GT(compared, 1000u);
}

}  // namespace
}  // namespace gradledger
