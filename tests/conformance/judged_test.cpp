// Recordings judged with no engine between: by the oracle alone, and held against its verdict on the engine's run of the same scenario.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include <fmt/format.h>

#include "sim/load.h"
#include "sim/producers/producers.h"
#include "tests/conformance/judged.h"
#include "tests/conformance/recordings.h"

namespace gradledger::conform {
namespace {

using ref::FindingClass;

// How two verdicts of one run compare.
enum class Kind {
  same,          // the same classes at the same windows and ranks, of the same contributions
  equal_data,    // the same but for contributions with equal data, one of which is as good as the other
  told_in_part,  // the recording's are a part: no element that a rank holds tells the others
  unexplained,   // both find something; the recording says that its values leave open which contributions it is
  unchanged,     // the recording's are a part: a buffer that has the bits of the window before is not judged again
  scale,         // the same but for a loss scale where the documentation has none: the engine says which it used, a recording does not
  same_values,   // every rank brought the same numbers, so that what is missing of one cannot be told from the others
  other,
};
constexpr std::size_t kinds = 8;

struct Agreement {
  const char* file;
  std::uint64_t clean, findings, not_judged, snapshots, unexplained;
  std::array<std::uint64_t, kinds> agreement;  // runs by kind, of those that are judged or simulated
};

constexpr Agreement all_agreements[] = {
    {"stages_1_to_3", 105, 30, 0, 6653, 0, {135, 0, 0, 0, 0, 0, 0, 0}},
    {"cpu_offload", 96, 24, 0, 5092, 0, {112, 8, 0, 0, 0, 0, 0, 0}},
    {"bf16_optimizer", 41, 14, 0, 3278, 0, {53, 0, 0, 0, 0, 2, 0, 0}},
    {"bucket_options", 34, 0, 0, 1792, 0, {34, 0, 0, 0, 0, 0, 0, 0}},
    {"odd_orders", 161, 135, 11, 9364, 0, {269, 3, 24, 0, 0, 0, 0, 0}},
    {"fp16_overflow", 44, 4, 0, 1553, 0, {48, 0, 0, 0, 0, 0, 0, 0}},
    {"rounding", 39, 9, 4, 422, 26, {45, 0, 0, 4, 0, 0, 3, 0}},
    {"stage_0", 26, 48, 1, 4208, 0, {60, 6, 0, 0, 0, 8, 0, 0}},
    {"coalesced_reduction", 57, 11, 8, 3858, 0, {70, 2, 0, 0, 4, 0, 0, 0}},
    {"unmanaged_accumulation", 22, 12, 0, 773, 0, {34, 0, 0, 0, 0, 0, 0, 0}},
    {"contiguous_gradients_off", 0, 18, 0, 988, 0, {18, 0, 0, 0, 0, 0, 0, 0}},
};

// Contributions by rank and data; too much of one is stale or counted again, as the window has it that it came in.
struct Place {
  FindingClass finding;
  std::uint32_t step, rank;
  auto operator<=>(const Place&) const = default;
};
using Found = std::map<Place, std::set<std::string>>;

class Reading {
 public:
  explicit Reading(const Timeline& timeline) {
    for (std::uint32_t b = 0; b < timeline.backwards.size(); ++b)
      for (std::uint32_t r = 0; r < timeline.world_size; ++r)
        if (timeline.backwards[b].micro_batch[r] != no_contribution) data_[text(timeline.contribution(b, r))] = fmt::format("{}:{}", r, timeline.backwards[b].data[r]);
  }

  Found of(const ref::Verdict& verdict, bool by_data) const {
    Found out;
    for (const ref::Finding& f : verdict.findings) {
      const FindingClass finding = by_data && f.finding == FindingClass::stale_gradient ? FindingClass::duplicated_gradient : f.finding;
      std::set<std::string>& contributions = out[{finding, f.step, f.rank}];
      for (const ref::Miscounted& m : f.contributions) contributions.insert(by_data ? data_.at(text(m.contribution)) : text(m.contribution));
    }
    return out;
  }

 private:
  static std::string text(const Contribution& c) { return fmt::format("{}.{}.{}", c.step, c.rank, c.micro_batch); }

  std::map<std::string, std::string> data_;
};

bool is_part(const Found& part, const Found& whole) {
  return std::all_of(part.begin(), part.end(), [&](const auto& entry) {
    const auto at = whole.find(entry.first);
    return at != whole.end() && std::includes(at->second.begin(), at->second.end(), entry.second.begin(), entry.second.end());
  });
}

Found without_scales(Found found) {
  std::erase_if(found, [](const auto& entry) { return entry.first.finding == FindingClass::wrong_scale || entry.first.finding == FindingClass::wrong_norm; });
  return found;
}

// Whether every rank brings the same gradients in every backward.
bool same_on_all_ranks(const Scenario& scenario, const Timeline& timeline) {
  const GivenValues& values = *scenario.gradients.values;
  return std::all_of(timeline.backwards.begin(), timeline.backwards.end(), [&](const Backward& b) {
    const auto& ranks = values[b.data.front()];
    return std::all_of(ranks.begin(), ranks.end(), [&](const auto& rank) { return rank == ranks.front(); });
  });
}

Kind compared(const Recording& recording, const Timeline& timeline, const ref::Verdict& alone, const ref::Verdict& engine) {
  const Reading reading(timeline);
  if (reading.of(alone, false) == reading.of(engine, false)) return Kind::same;
  const Found ours = reading.of(alone, true), theirs = reading.of(engine, true);
  if (ours == theirs) return Kind::equal_data;
  if (alone.inconclusive_rows.total() > 0 && is_part(ours, theirs)) return Kind::told_in_part;
  if (alone.coverage.not_judged[static_cast<std::size_t>(ref::NotDue::unchanged)] > 0 && is_part(ours, theirs)) return Kind::unchanged;
  if (without_scales(ours) == without_scales(theirs)) return Kind::scale;
  if (!alone.unexplained.empty() && !ours.empty() && !theirs.empty()) return Kind::unexplained;
  return same_on_all_ranks(recording.scenario, timeline) ? Kind::same_values : Kind::other;
}

ref::Verdict by_the_engine(const Scenario& scenario, const Timeline& timeline) {
  const auto producer = make_producer(scenario, timeline, {.arithmetic = CollectiveArithmetic::gloo_fp32});
  return ref::judge(scenario, timeline, *producer, {.check_streams = false});
}

std::string places(const Found& found) {
  std::string out;
  for (const auto& [place, contributions] : found)
    out += fmt::format(" {} in window {}, rank {} ({})", ref::name_of(place.finding), place.step, place.rank, fmt::join(contributions, " "));
  return out;
}

class judged_recordings : public ::testing::TestWithParam<Agreement> {};

TEST_P(judged_recordings, show_what_the_engines_runs_show) {
  const Agreement& expected = GetParam();
  JudgedTotals totals;
  std::array<std::uint64_t, kinds> agreement{};
  for (const RecordedRun& run : runs_of(expected.file)) {
    const auto recording = express(run);
    ASSERT_TRUE(recording) << run.name;
    const Judged judged = judge_alone(*recording);
    totals.add(judged);
    if (!recording->refusal.empty()) continue;
    const auto timeline = make_timeline(recording->scenario);
    const ref::Verdict engine = by_the_engine(recording->scenario, *timeline);
    const Kind kind = compared(*recording, *timeline, judged.verdict, engine);
    ++agreement[static_cast<std::size_t>(kind)];
    const Reading reading(*timeline);
    EXPECT_NE(kind, Kind::other) << run.name << " at " << run.version << ": the recording shows" << places(reading.of(judged.verdict, false)) << "; the engine's run shows"
                                 << places(reading.of(engine, false));
  }
  EXPECT_EQ(totals.clean, expected.clean);
  EXPECT_EQ(totals.with_findings, expected.findings);
  EXPECT_EQ(totals.not_judged, expected.not_judged);
  EXPECT_EQ(totals.snapshots, expected.snapshots);
  EXPECT_EQ(totals.unexplained, expected.unexplained);
  EXPECT_EQ(agreement, expected.agreement) << fmt::format("{{\"{}\", {}, {}, {}, {}, {}, {{{}}}}},", expected.file, totals.clean, totals.with_findings, totals.not_judged,
                                                          totals.snapshots, totals.unexplained, fmt::join(agreement, ", "));
}

INSTANTIATE_TEST_SUITE_P(of_every_file, judged_recordings, ::testing::ValuesIn(all_agreements), [](const auto& info) { return std::string(info.param.file); });

// ---- what a buffer is -------------------------------------------------------------------------------------------------------------------

// Role and elements of every gradient that a producer shows, by place and name.
class Snapshots final : public TraceSink {
 public:
  struct Shown {
    Role role;
    std::vector<Stretch> stretches;  // without padding
    bool operator==(const Shown&) const = default;
  };

  void observe(const Observation& o) override {
    if (!o.at_end || o.role == Role::parameter || o.role == Role::master_parameter) return;
    Shown shown{o.role, {}};
    for (const ObservedPiece& piece : o.pieces)
      if (piece.parameter >= 0 && piece.numel > 0) shown.stretches.push_back({piece.parameter, piece.parameter_offset, piece.numel});
    shown_[{o.event, o.rank, std::string(o.buffer)}] = shown;
  }

  const auto& shown() const { return shown_; }

 private:
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::string>, Shown> shown_;
};

// The layout is written from the framework's documentation, the engine's from its source: where both name a buffer they mean the same elements and,
// where the recording's is judged, the same role.
TEST(recorded_buffers, hold_the_elements_that_the_engines_have_in_them) {
  std::uint64_t compared = 0, judged = 0;
  for (const char* file : {"stages_1_to_3", "cpu_offload", "bf16_optimizer", "stage_0", "unmanaged_accumulation"})
    for (const RecordedRun& run : runs_of(file)) {
      const auto recording = express(run);
      if (!recording || !recording->refusal.empty()) continue;
      const auto timeline = make_timeline(recording->scenario);
      const auto source = ref::value_source(recording->scenario, *timeline, GradientKind::values, 0);
      Snapshots ours, theirs;
      RecordedProducer(*recording, *timeline).run(*source, {}, ours);
      make_producer(recording->scenario, *timeline, {.arithmetic = CollectiveArithmetic::gloo_fp32})->run(*source, {}, theirs);
      for (const auto& [key, shown] : ours.shown()) {
        const auto same = theirs.shown().find(key);
        if (same == theirs.shown().end()) continue;
        ++compared;
        if (shown.role == Role::scratch) continue;
        ++judged;
        EXPECT_EQ(shown.stretches, same->second.stretches) << run.name << " at " << run.version << ": " << std::get<2>(key);
        EXPECT_EQ(name_of(shown.role), name_of(same->second.role)) << run.name << " at " << run.version << ", event " << std::get<0>(key) << ": " << std::get<2>(key);
      }
    }
  EXPECT_GT(judged, 10000u);
  EXPECT_GT(compared, judged);
}

}  // namespace
}  // namespace gradledger::conform
