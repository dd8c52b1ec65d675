// Operations keep their numbers when earlier ones are let go.
#include "sim/program/op_list.h"

#include <gtest/gtest.h>

namespace gradledger {
namespace {

TEST(a_list_of_operations, keeps_the_numbers_of_those_that_stay) {
  OpList<int> list;
  for (int i = 0; i < 10; ++i) list.emplace_back() = i;
  EXPECT_FALSE(list.forget_before(3)) << "fewer than those that would have to move";
  EXPECT_EQ(list.forgotten(), 0u);
  EXPECT_TRUE(list.forget_before(6));
  EXPECT_EQ(list.forgotten(), 6u);
  EXPECT_EQ(list.size(), 10u);
  for (std::size_t i = 6; i < 10; ++i) EXPECT_EQ(list[i], static_cast<int>(i));
  list.emplace_back() = 10;
  EXPECT_EQ(list[10], 10);
  EXPECT_TRUE(list.forget_before(11));
  EXPECT_EQ(list.size(), 11u);
  list.clear();
  EXPECT_EQ(list.size(), 0u);
  EXPECT_EQ(list.begin(), list.end());
}

}  // namespace
}  // namespace gradledger
