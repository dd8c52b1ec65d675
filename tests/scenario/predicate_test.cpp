// Conditions on contributions: which texts are conditions, and which contributions they hold for.
#include "sim/scenario/predicate.h"

#include <gtest/gtest.h>

namespace gradledger {
namespace {

Predicate condition(std::string_view text) {
  auto parsed = Predicate::parse(text, "/here");
  if (!parsed) ADD_FAILURE() << parsed.error().text();
  return parsed ? *parsed : Predicate{};
}

// The micro-batches from 0 to 4, of a window of five, for which a condition holds on rank 1 in step 2.
std::vector<std::uint32_t> holds_for(std::string_view text) {
  const Predicate predicate = condition(text);
  std::vector<std::uint32_t> out;
  for (std::uint32_t m = 0; m < 5; ++m)
    if (predicate.holds({2, 1, m}, 5)) out.push_back(m);
  return out;
}

using Numbers = std::vector<std::uint32_t>;
const Numbers all{0, 1, 2, 3, 4}, none{};

TEST(predicate, compares_in_six_ways) {
  EXPECT_EQ(holds_for("micro_batch < 2"), (Numbers{0, 1}));
  EXPECT_EQ(holds_for("micro_batch <= 2"), (Numbers{0, 1, 2}));
  EXPECT_EQ(holds_for("micro_batch == 2"), (Numbers{2}));
  EXPECT_EQ(holds_for("micro_batch != 2"), (Numbers{0, 1, 3, 4}));
  EXPECT_EQ(holds_for("micro_batch >= 2"), (Numbers{2, 3, 4}));
  EXPECT_EQ(holds_for("micro_batch > 2"), (Numbers{3, 4}));
}

TEST(predicate, tells_rank_step_and_micro_batch_apart) {
  EXPECT_EQ(holds_for("rank == 1"), all);
  EXPECT_EQ(holds_for("rank == 2"), none);
  EXPECT_EQ(holds_for("step == 2"), all);
  EXPECT_EQ(holds_for("step == 1"), none);
  EXPECT_EQ(holds_for("micro_batch == 1"), (Numbers{1}));
}

TEST(predicate, demands_every_term) {
  EXPECT_EQ(holds_for("micro_batch > 0 and micro_batch < 3"), (Numbers{1, 2}));
  EXPECT_EQ(holds_for("micro_batch > 0 and rank == 0"), none);
  EXPECT_EQ(holds_for("micro_batch > 0 and rank == 1 and step == 2 and micro_batch != 3"), (Numbers{1, 2, 4}));
}

TEST(predicate, knows_the_last_micro_batch_of_each_window) {
  EXPECT_EQ(holds_for("micro_batch == last"), (Numbers{4}));
  EXPECT_EQ(holds_for("micro_batch < last"), (Numbers{0, 1, 2, 3}));
  const Predicate last = condition("micro_batch == last");
  EXPECT_TRUE(last.holds({0, 0, 0}, 1));
  EXPECT_FALSE(last.holds({0, 0, 0}, 2));
  EXPECT_TRUE(last.holds({0, 0, 1}, 2));
}

TEST(predicate, without_text_holds_always) {
  EXPECT_EQ(holds_for(""), all);
  EXPECT_EQ(holds_for(" \t\n"), all);
}

TEST(predicate, takes_the_largest_number) {
  EXPECT_EQ(holds_for("micro_batch <= 4294967295"), all);
  EXPECT_EQ(holds_for("micro_batch == 0004"), (Numbers{4}));
}

TEST(predicate, needs_spaces_only_where_words_would_run_together) {
  EXPECT_EQ(holds_for("micro_batch<2"), (Numbers{0, 1}));
  EXPECT_EQ(holds_for("micro_batch>=2 and rank==1 and step!=3"), (Numbers{2, 3, 4}));
  EXPECT_EQ(holds_for("\tmicro_batch\n!=last "), (Numbers{0, 1, 2, 3}));
}

TEST(predicate, keeps_its_text) {
  EXPECT_EQ(condition(" rank==1 ").text(), " rank==1 ");
  EXPECT_TRUE(condition("rank == 1") == condition("rank == 1"));
  EXPECT_FALSE(condition("rank == 1") == condition("rank==1"));
}

TEST(predicate, that_cannot_be_read_says_where_and_what_was_expected) {
  const std::string field = "expected micro_batch, rank or step", comparison = "expected one of <, <=, ==, !=, >=, >", number = "expected a number from 0 to 4294967295",
                    joint = "expected \"and\" or the end";
  struct Row {
    const char* text;
    const char* at;
    std::string expected;
  };
  const std::vector<Row> rows{
      {"microbatch < 3", "at \"microbatch\"", field},
      {"3 < micro_batch", "at \"3\"", field},
      {"and", "at \"and\"", field},
      {"rank == 1 and", "at its end", field},
      {"Rank == 1", "at \"Rank\"", field},
      {"(rank == 1)", "at \"(\"", field},
      {"rank", "at its end", comparison},
      {"rank = 1", "at \"=\"", comparison},
      {"rank is 1", "at \"is\"", comparison},
      {"rank === 1", "at \"===\"", comparison},
      {"rank < = 1", "at \"=\"", number},
      {"rank <", "at its end", number},
      {"rank < -1", "at \"-\"", number},
      {"rank <-1", "at \"<-\"", comparison},
      {"rank < 1.5", "at \".\"", joint},
      {"rank < 4294967296", "at \"4294967296\"", number},
      {"rank < 99999999999999999999999999", "at \"99999999999999999999999999\"", number},
      {"rank == last", "at \"last\"", number + ", in terms"},
      {"micro_batch == first", "at \"first\"", number + " or \"last\""},
      {"rank < 0x1", "at \"0x1\"", number},
      {"rank == 1 or rank == 2", "at \"or\"", joint},
      {"rank == 1, step > 0", "at \",\"", joint},
      {"rank == 1 && step > 0", "at \"&&\"", joint},
      {"rank == 1 AND step > 0", "at \"AND\"", joint},
      {"rank == 1and step > 0", "at \"1and\"", number},
      {"rank == 1 rank", "at \"rank\"", joint},
  };
  for (const Row& row : rows) {
    const auto parsed = Predicate::parse(row.text, "/here");
    ASSERT_FALSE(parsed) << row.text;
    EXPECT_EQ(parsed.error().where, "/here");
    EXPECT_NE(parsed.error().message.find(row.at), std::string::npos) << parsed.error().text();
    EXPECT_NE(parsed.error().message.find(row.expected), std::string::npos) << parsed.error().text();
    EXPECT_NE(parsed.error().message.find("\"micro_batch == last\""), std::string::npos) << parsed.error().text();
  }
}

TEST(predicate, of_bytes_that_are_no_text_is_refused) {
  for (const std::string& text : {std::string("rank == 1\0", 10), std::string("rank == \xff"), std::string("\xf0\x9f\x98")}) {
    const auto parsed = Predicate::parse(text, "/here");
    ASSERT_FALSE(parsed);
    EXPECT_NE(parsed.error().message.find("cannot read the condition"), std::string::npos);
  }
}

}  // namespace
}  // namespace gradledger
