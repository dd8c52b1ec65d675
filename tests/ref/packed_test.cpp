// Data of runs in which contributions share elements.
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "ref/packed.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

Scenario window_of(std::uint32_t micro_batches, std::uint32_t world, Dtype dtype) {
  Scenario s = base_scenario(world, {40}, dtype);
  deepspeed_config(s).zero.stage = 1;
  deepspeed_config(s).gradient_accumulation_steps = micro_batches;
  s.script = {repeat(2, managed(micro_batches))};
  return s;
}

struct Packed {
  Scenario scenario;
  Timeline timeline;
  ref::ProbeRange range;
  ref::Packing packing;

  explicit Packed(Scenario s) : scenario(std::move(s)), timeline(*make_timeline(scenario)), range(ref::probe_range(scenario, timeline)) {
    const ref::Ledger ledger(scenario, timeline, range);
    packing = ref::packing_of(timeline, range, ledger.lone_rounding());
  }
  std::vector<double> of(std::uint32_t backward, std::uint32_t rank, std::uint32_t run = 0) const {
    std::vector<double> out(40);
    ref::PackedSource(scenario, timeline, packing, 7, run).gradient(backward, rank, 0, 0, out);
    return out;
  }
};

TEST(packed_data, have_every_contribution_on_every_element_and_sums_that_the_format_holds) {
  for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16, Dtype::float16}) {
    const Packed packed(window_of(4, 2, dtype));
    ASSERT_TRUE(packed.packing.exact);
    EXPECT_EQ(packed.packing.classes, 1u);
    std::vector<double> sums(40, 0.0);
    for (std::uint32_t b = 0; b < 4; ++b)
      for (std::uint32_t r = 0; r < 2; ++r) {
        const std::vector<double> values = packed.of(b, r);
        for (std::size_t i = 0; i < values.size(); ++i) {
          EXPECT_GT(values[i], 0);
          sums[i] += values[i];
        }
      }
    for (const double sum : sums) EXPECT_LE(sum / packed.packing.unit, std::ldexp(1.0, packed.range.precision - 1));
  }
}

TEST(packed_data, differ_between_contributions_windows_and_runs) {
  const Packed packed(window_of(4, 2, Dtype::float32));
  std::set<std::vector<double>> seen;
  for (std::uint32_t b = 0; b < 8; ++b)
    for (std::uint32_t r = 0; r < 2; ++r)
      for (std::uint32_t run = 0; run < 3; ++run) seen.insert(packed.of(b, r, run));
  EXPECT_EQ(seen.size(), 48u);
}

// Else what an earlier window left looks like more of this one's: sums of 16 bits leave room for that.
TEST(packed_data, of_four_windows_in_turn_have_signs_of_their_own) {
  Scenario s = window_of(1, 3, Dtype::bfloat16);
  s.script = {repeat(4, managed(1))};
  const Packed packed(s);
  ASSERT_FALSE(packed.packing.exact);
  for (std::uint32_t r = 0; r < 3; ++r)
    for (std::uint32_t a = 0; a < 4; ++a)
      for (std::uint32_t b = 0; b < a; ++b) {
        const std::vector<double> one = packed.of(a, r), other = packed.of(b, r);
        int alike = 0;
        for (std::size_t i = 0; i < 8 * packed.packing.classes; ++i) alike += one[i] * other[i] > 0;
        EXPECT_EQ(alike, 4) << "of 8 elements that have rank " << r << ", in windows " << a << " and " << b;
      }
}

TEST(packed_data, do_not_depend_on_where_a_part_begins) {
  for (const std::uint32_t world : {2u, 3u}) {
    const Packed packed(window_of(4, world, Dtype::bfloat16));
    const ref::PackedSource source(packed.scenario, packed.timeline, packed.packing, 7, 0);
    std::vector<double> whole(40), part(11);
    source.gradient(1, 1, 0, 0, whole);
    source.gradient(1, 1, 0, 13, part);
    EXPECT_EQ(part, std::vector<double>(whole.begin() + 13, whole.begin() + 24));
  }
}

TEST(packed_data, divide_contributions_into_classes_where_formats_hold_fewer) {
  const Packed many(window_of(64, 2, Dtype::bfloat16));
  EXPECT_GT(many.packing.classes, 1u);
  const Packed thirds(window_of(4, 3, Dtype::bfloat16));
  EXPECT_FALSE(thirds.packing.exact);
  EXPECT_GT(thirds.packing.classes, 1u);
  std::set<std::size_t> lit;
  for (std::uint32_t b = 0; b < 4; ++b)
    for (std::uint32_t r = 0; r < 3; ++r) {
      const std::vector<double> values = thirds.of(b, r);
      EXPECT_NE(std::count(values.begin(), values.end(), 0.0), 40) << "each contribution is somewhere";
      for (std::size_t i = 0; i < values.size(); ++i)
        if (values[i] != 0) lit.insert(i);
    }
  EXPECT_EQ(lit.size(), 40u) << "each element has some";
}

}  // namespace
}  // namespace gradledger::testing
