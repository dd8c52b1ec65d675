// Contracts throw in every build, and say where.
#include "sim/base/contract.h"

#include <gtest/gtest.h>

namespace gradledger {
namespace {

std::string what_of(void (*broken)()) {
  try {
    broken();
  } catch (const ContractViolation& violation) {
    return violation.what();
  }
  return "";
}

TEST(contract, a_kept_contract_passes) {
  EXPECT_NO_THROW(expects(true, "kept"));
  EXPECT_NO_THROW(ensures(true, "kept"));
}

TEST(contract, a_broken_precondition_can_be_caught_and_names_its_place) {
  const std::string what = what_of([] { expects(false, "the moon is full"); });
  EXPECT_NE(what.find("precondition broken in"), std::string::npos) << what;
  EXPECT_NE(what.find("contract_test.cpp:"), std::string::npos) << what;
  EXPECT_TRUE(what.ends_with("the moon is full")) << what;
}

TEST(contract, a_broken_postcondition_can_be_caught_and_names_its_place) {
  const std::string what = what_of([] { ensures(false, "the sea is calm"); });
  EXPECT_NE(what.find("postcondition broken in"), std::string::npos) << what;
  EXPECT_NE(what.find("contract_test.cpp:"), std::string::npos) << what;
  EXPECT_TRUE(what.ends_with("the sea is calm")) << what;
}

TEST(contract, a_violation_is_a_logic_error) { EXPECT_THROW(expects(false, "broken"), std::logic_error); }

}  // namespace
}  // namespace gradledger
