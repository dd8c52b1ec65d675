// Lines of at most a width.
#include "report/layout.h"

#include <gtest/gtest.h>

namespace gradledger::testing {
namespace {

using report::any_width;
using report::columns_of;
using report::Flow;
using report::wrapped;

TEST(layout, counts_characters_and_not_bytes) {
  EXPECT_EQ(columns_of(""), 0u);
  EXPECT_EQ(columns_of("abc"), 3u);
  EXPECT_EQ(columns_of("gr\xc3\xb6\xc3\x9f"
                       "e"),
            5u);
}

TEST(layout, breaks_at_spaces_and_indents_what_goes_on) {
  EXPECT_EQ(wrapped("one two three", 8, 2), "one two\n  three");
  EXPECT_EQ(wrapped("one two three", 7, 0), "one two\nthree");
  EXPECT_EQ(wrapped("one two three", 13, 2), "one two three");
  EXPECT_EQ(wrapped("one two three", any_width, 2), "one two three");
}

TEST(layout, keeps_line_feeds_spaces_at_the_front_and_words_that_are_wider_than_a_line) {
  EXPECT_EQ(wrapped("a b\nc d\n", 3, 1), "a b\nc d\n");
  EXPECT_EQ(wrapped("    deep text", 10, 6), "    deep\n      text");
  EXPECT_EQ(wrapped("see /a/long/path/to/a/file now", 10, 2), "see\n  /a/long/path/to/a/file\n  now");
  EXPECT_EQ(wrapped("", 10, 2), "");
}

TEST(layout, lets_parts_follow_one_another_each_whole) {
  Flow flow(16, 4, 2);
  for (const char* part : {"alpha", "beta", "gamma"}) flow.add(part, part);
  EXPECT_EQ(flow.text(), "alpha; beta;\n  gamma");
  Flow coloured(16, 4, 2);
  coloured.add("alpha", "<alpha>");
  coloured.add("x", "<x>");
  EXPECT_EQ(coloured.text(), "<alpha>; <x>") << "colours take no columns";
}

}  // namespace
}  // namespace gradledger::testing
