// An index by hash, held to a list that is walked.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/base/hash.h"
#include "sim/base/hash_index.h"

namespace gradledger {
namespace {

// Words whose hashes are few, so that many share one and their places run into each other.
struct Listed {
  std::vector<std::uint64_t> words;
  HashIndex index;

  static std::uint64_t hash_of(std::uint64_t word) { return word % 7 * 15; }
  std::uint32_t find(std::uint64_t word) const {
    return index.find(hash_of(word), [&](std::uint32_t i) { return words[i] == word; });
  }
  std::uint32_t walk(std::uint64_t word) const {
    for (std::uint32_t i = 0; i < words.size(); ++i)
      if (words[i] == word) return i;
    return HashIndex::none;
  }
  void cut(std::size_t size) {
    words.resize(size);
    index.cut(size);
  }
};

void expect_same(const Listed& listed, std::uint64_t words) {
  ASSERT_EQ(listed.index.size(), listed.words.size());
  for (std::uint64_t word = 0; word < words; ++word) ASSERT_EQ(listed.find(word), listed.walk(word)) << word;
}

TEST(hash_index, finds_what_a_walk_finds_whatever_was_added_and_cut) {
  constexpr std::uint64_t words = 120;
  SplitMix64 draw(3);
  std::size_t most = 0;
  for (int round = 0; round < 20; ++round) {
    Listed listed;
    for (int step = 0; step < 200; ++step) {
      const std::uint64_t word = draw.below(words);
      if (draw.below(8) == 0) {
        listed.cut(draw.below(static_cast<std::uint32_t>(listed.words.size() + 1)));
      } else if (listed.find(word) == HashIndex::none) {
        ASSERT_EQ(listed.index.add(Listed::hash_of(word)), listed.words.size());
        listed.words.push_back(word);
      }
      most = std::max(most, listed.words.size());
      if (step % 10 == 0) expect_same(listed, words);
    }
    expect_same(listed, words);
    if (::testing::Test::HasFatalFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(most, 30u);
}

TEST(hash_index, has_nothing_before_the_first_and_behind_a_clear) {
  Listed listed;
  EXPECT_EQ(listed.find(1), HashIndex::none);
  listed.words.push_back(1);
  listed.index.add(Listed::hash_of(1));
  EXPECT_EQ(listed.find(1), 0u);
  listed.words.clear();
  listed.index.clear();
  EXPECT_EQ(listed.find(1), HashIndex::none);
  EXPECT_EQ(listed.index.size(), 0u);
}

}  // namespace
}  // namespace gradledger
