// The commands that draw the same cases again.
#include <gtest/gtest.h>

#include "tools/gradledger/fuzz.h"

namespace gradledger::tool {
namespace {

TEST(the_command_that_draws_a_case_again, says_how_the_ranks_ran) {
  Options options;
  FuzzOptions fuzz;
  EXPECT_EQ(drawn_by(options, fuzz), " --seed 0");
  options.producer = "deepspeed";
  options.python = "python3";
  options.streams = "virtual";
  EXPECT_EQ(drawn_by(options, fuzz), " --seed 0 --producer deepspeed --python python3 --streams virtual");
  options.streams = "";
  options.backend = "gloo";
  options.deliver = "late";
  EXPECT_EQ(drawn_by(options, fuzz), " --seed 0 --producer deepspeed --python python3 --backend gloo --deliver late");
  options = {};
  options.producer = "program:./my driver";
  EXPECT_EQ(drawn_by(options, fuzz), " --seed 0 --producer 'program:./my driver'");
}

}  // namespace
}  // namespace gradledger::tool
