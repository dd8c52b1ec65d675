// A result is a value or one error, and asking it for the other one is the programmer's fault.
#include "sim/base/result.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace gradledger {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) return InputError{"/number", "is odd; expected an even number"};
  return number / 2;
}

TEST(result, a_value_is_read_in_every_way) {
  const auto result = half(8);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(static_cast<bool>(result));
  EXPECT_EQ(result.value(), 4);
  EXPECT_EQ(*result, 4);
}

TEST(result, an_error_carries_its_place_and_its_message) {
  const auto result = half(7);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error(), (InputError{"/number", "is odd; expected an even number"}));
  EXPECT_EQ(result.error().text(), "/number: is odd; expected an even number");
}

TEST(result, an_error_of_no_place_is_its_message_alone) { EXPECT_EQ((InputError{"", "is empty"}).text(), "is empty"); }

TEST(result, reading_the_value_of_an_error_breaks_a_contract) {
  auto result = half(7);
  EXPECT_THROW(result.value(), ContractViolation);
  EXPECT_THROW(*result, ContractViolation);
  EXPECT_THROW(std::move(result).value(), ContractViolation);
}

TEST(result, reading_the_error_of_a_value_breaks_a_contract) { EXPECT_THROW(half(8).error(), ContractViolation); }

TEST(result, members_are_reached_through_the_arrow) {
  const Result<std::string> result(std::string("four"));
  EXPECT_EQ(result->size(), 4u);
  const Result<std::string> failed(InputError{"", "no"});
  EXPECT_THROW(failed->size(), ContractViolation);
}

TEST(result, a_value_that_only_moves_is_moved_out) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(3));
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 3);
}

TEST(result, a_result_of_an_error_type_tells_value_and_error_apart) {
  struct Other {
    std::string where, message;
  };
  EXPECT_TRUE(Result<Other>(Other{"a", "b"}).ok());
  EXPECT_FALSE(Result<Other>(InputError{"a", "b"}).ok());
}

}  // namespace
}  // namespace gradledger
