// A rank's memory by itself.
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/execution/memory.h"

namespace gradledger::testing {
namespace {

const BufferDeclaration four_floats{"x", Dtype::float32, 4, MemorySpace::device, 16};

bool all_poison(RankMemory& memory, BufferId buffer) {
  const std::byte* at = memory.at({buffer, 0, 4});
  return std::all_of(at, at + 16, [](std::byte b) { return b == poison; });
}

TEST(rank_memory, holds_poison_until_it_is_written_and_after_its_release) {
  RankMemory memory;
  memory.prepare({four_floats});
  memory.allocate(four_floats, 0);
  EXPECT_TRUE(all_poison(memory, 0));
  std::fill_n(memory.at({0, 0, 4}), 16, std::byte{1});
  memory.storage(0).written.add({0, 4});
  EXPECT_FALSE(all_poison(memory, 0));
  memory.release(0);
  EXPECT_TRUE(all_poison(memory, 0));
  EXPECT_FALSE(memory.storage(0).holds({0, 0, 1}));
  memory.allocate(four_floats, 0);
  EXPECT_TRUE(all_poison(memory, 0));
  EXPECT_FALSE(memory.storage(0).holds({0, 0, 1})) << "what was written before the release is gone";
}

TEST(rank_memory, counts_what_is_held) {
  RankMemory memory;
  memory.prepare({four_floats, four_floats});
  memory.allocate(four_floats, 0);
  memory.allocate(four_floats, 1);
  EXPECT_EQ(memory.bytes_held(), 32u);
  memory.release(0);
  EXPECT_EQ(memory.bytes_held(), 16u);
  memory.release(0);
  EXPECT_EQ(memory.bytes_held(), 16u) << "once";
  memory.release(1);
  EXPECT_EQ(memory.bytes_held(), 0u);
}

TEST(rank_memory, stays_in_its_place_where_parts_of_a_buffer_are_asked_for_before_it_is_allocated) {
  RankMemory memory;
  memory.prepare({four_floats});
  const std::byte* first = memory.at({0, 0, 1});
  const std::byte* last = memory.at({0, 3, 1});
  EXPECT_EQ(last - first, 12);
  EXPECT_EQ(memory.at({0, 0, 1}), first);
}

}  // namespace
}  // namespace gradledger::testing
