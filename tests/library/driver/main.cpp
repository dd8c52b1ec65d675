// A driver in C++ for the tests: which runtime it serves says LIBRARY_TEST_DEFECT, a number of Defect.
#include <cstdlib>

#include "gradledger/driver.hpp"
#include "tests/library/runtime.h"

int main() {
  const char* number = std::getenv("LIBRARY_TEST_DEFECT");
  const auto defect = static_cast<library_test::Defect>(number ? std::atoi(number) : 0);
  return gradledger::serve(library_test::runtime({library_test::Reduces::at_the_last_backward, defect}));
}
