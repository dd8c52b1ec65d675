// RangeSet against a bitmap.
#include "sim/base/ranges.h"

#include <string>

#include <gtest/gtest.h>

#include "sim/base/hash.h"

namespace gradledger {
namespace {

std::string text_of(const RangeSet& set) {
  std::string out;
  for (const Range& r : set.ranges()) out += "[" + std::to_string(r.begin) + "," + std::to_string(r.end) + ")";
  return out;
}

TEST(range_set, an_empty_set_covers_the_empty_range_alone) {
  const RangeSet set;
  EXPECT_TRUE(set.empty());
  EXPECT_TRUE(set.ranges().empty());
  EXPECT_TRUE(set.covers({3, 3}));
  EXPECT_FALSE(set.covers({3, 4}));
  EXPECT_EQ(set.first_gap({3, 7}), (Range{3, 7}));
  EXPECT_EQ(set.first_gap({3, 3}), std::nullopt);
}

TEST(range_set, neighbours_merge) {
  RangeSet set;
  set.add({0, 4});
  set.add({8, 12});
  EXPECT_EQ(text_of(set), "[0,4)[8,12)");
  set.add({4, 8});
  EXPECT_EQ(text_of(set), "[0,12)");
}

TEST(range_set, a_range_that_spans_several_swallows_them) {
  RangeSet set;
  for (std::uint32_t at : {0u, 10u, 20u, 30u}) set.add({at, at + 5});
  set.add({4, 31});
  EXPECT_EQ(text_of(set), "[0,35)");
}

TEST(range_set, removing_the_middle_splits) {
  RangeSet set;
  set.add({0, 10});
  set.remove({3, 5});
  EXPECT_EQ(text_of(set), "[0,3)[5,10)");
  EXPECT_EQ(set.first_gap({0, 10}), (Range{3, 5}));
  EXPECT_EQ(set.first_gap({4, 10}), (Range{4, 5}));
  EXPECT_EQ(set.first_gap({5, 12}), (Range{10, 12}));
}

TEST(range_set, the_ends_of_the_index_space_are_ordinary) {
  constexpr std::uint32_t last = 0xFFFFFFFFu;
  RangeSet set;
  set.add({last - 1, last});
  set.add({0, 1});
  EXPECT_EQ(text_of(set), "[0,1)[4294967294,4294967295)");
  set.add({1, last - 1});
  EXPECT_EQ(text_of(set), "[0,4294967295)");
  set.remove({0, last});
  EXPECT_TRUE(set.empty());
}

TEST(range_set, a_copy_is_a_value) {
  RangeSet set;
  set.add({0, 2});
  set.add({4, 6});
  RangeSet copy = set;
  copy.clear();
  EXPECT_TRUE(copy.empty());
  EXPECT_EQ(text_of(set), "[0,2)[4,6)");
}

// The same operations on one bit an element.
class Bitmap {
 public:
  static constexpr std::uint32_t size = 64;

  void fill(Range r, bool value) {
    for (std::uint64_t i = r.begin; i < r.end; ++i) bits_[i] = value;
  }
  bool covers(Range r) const { return !first_gap(r); }
  std::optional<Range> first_gap(Range r) const {
    std::uint64_t begin = r.begin;
    while (begin < r.end && bits_[begin]) ++begin;
    if (begin >= r.end) return std::nullopt;
    std::uint64_t end = begin;
    while (end < r.end && !bits_[end]) ++end;
    return Range{begin, end};
  }
  std::vector<Range> ranges() const {
    std::vector<Range> out;
    for (std::uint32_t i = 0; i < size; ++i) {
      if (!bits_[i]) continue;
      if (out.empty() || out.back().end != i) out.push_back({i, i});
      out.back().end = i + 1;
    }
    return out;
  }

 private:
  bool bits_[size] = {};
};

Range random_range(SplitMix64& random) {
  const std::uint32_t a = random.below(Bitmap::size + 1), b = random.below(Bitmap::size + 1);
  if (random.below(8) == 0) return {a, a};
  // Mostly short, so that sets of many ranges come to be.
  return random.below(3) == 0 ? Range{std::min(a, b), std::max(a, b)} : Range{a, std::min(a + random.below(6), Bitmap::size)};
}

TEST(range_set, agrees_with_a_bitmap_after_any_operations) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SplitMix64 random(seed);
    RangeSet set;
    Bitmap bitmap;
    for (int operation = 0; operation < 120; ++operation) {
      const Range r = random_range(random);
      switch (random.below(16)) {
        case 0:
          set.clear();
          bitmap.fill({0, Bitmap::size}, false);
          break;
        case 1:
        case 2:
        case 3:
        case 4:
        case 5:
          set.remove(r);
          bitmap.fill(r, false);
          break;
        default: set.add(r); bitmap.fill(r, true);
      }
      ASSERT_EQ(set.ranges(), bitmap.ranges()) << "seed " << seed << ", operation " << operation << ": " << text_of(set);
      ASSERT_EQ(set.empty(), bitmap.ranges().empty());
      const Range asked = random_range(random);
      ASSERT_EQ(set.covers(asked), bitmap.covers(asked)) << text_of(set) << " covers " << asked.begin << " to " << asked.end;
      ASSERT_EQ(set.first_gap(asked), bitmap.first_gap(asked)) << text_of(set) << " of " << asked.begin << " to " << asked.end;
    }
  }
}

}  // namespace
}  // namespace gradledger
