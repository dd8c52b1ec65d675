// What was meant by a word that there is not.
#include "sim/base/suggest.h"

#include <vector>

#include <gtest/gtest.h>

namespace gradledger::testing {
namespace {

const std::vector<std::string> verbs{"replay", "gate", "fuzz", "explore", "list"};

TEST(a_suggestion, is_the_word_that_is_fewest_edits_away) {
  EXPECT_EQ(did_you_mean("repaly", verbs), "; did you mean \"replay\"?") << "two letters swapped";
  EXPECT_EQ(did_you_mean("gat", verbs), "; did you mean \"gate\"?");
  EXPECT_EQ(did_you_mean("explores", verbs), "; did you mean \"explore\"?");
  EXPECT_EQ(did_you_mean("fuss", std::vector<std::string>{"fuse", "fuzz"}), "; did you mean \"fuse\"?");
}

TEST(a_suggestion, is_not_made_where_nothing_is_near) {
  for (const char* word : {"", "x", "train", "relpacement"}) EXPECT_EQ(did_you_mean(word, verbs), "") << word;
  EXPECT_EQ(did_you_mean("gate", {}), "");
}

TEST(a_suggestion, takes_no_time_over_words_that_are_none) { EXPECT_EQ(did_you_mean(std::string(1u << 20, 'a'), verbs), ""); }

}  // namespace
}  // namespace gradledger::testing
