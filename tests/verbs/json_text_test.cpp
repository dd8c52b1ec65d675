// Changes to a document that leave the rest as it was written.
#include <gtest/gtest.h>

#include "verbs/json_text.h"

namespace gradledger::testing {
namespace {

using namespace gradledger::verbs;

std::string at(std::string_view text, TextRange range) { return std::string(text.substr(range.begin, range.end - range.begin)); }

TEST(a_member, is_found_by_its_key_and_not_by_what_looks_like_it) {
  const std::string text = R"( { "b": "\"a\": 1", "n": {"a": 2}, "\u0061" : [ 3, "]}" ], "z":null} )";
  const TextRange root = root_of(text);
  ASSERT_TRUE(member_of(text, root, "a"));
  EXPECT_EQ(at(text, *member_of(text, root, "a")), R"([ 3, "]}" ])");
  EXPECT_EQ(at(text, *member_of(text, root, "z")), "null");
  EXPECT_FALSE(member_of(text, root, "c"));
  EXPECT_FALSE(member_of("[1]", {0, 3}, "a"));
  const auto elements = elements_of(text, *member_of(text, root, "a"));
  ASSERT_EQ(elements.size(), 2u);
  EXPECT_EQ(at(text, elements[1]), R"("]}")");
  EXPECT_TRUE(elements_of("[ ]", {0, 3}).empty());
}

TEST(a_member_that_is_added, stands_as_the_ones_before_it) {
  const auto added = [](const std::string& text) { return with_member(text, root_of(text), "k", "[1]"); };
  EXPECT_EQ(added("{}"), R"({"k": [1]})");
  EXPECT_EQ(added(R"({"a": 1, "b": 2})"), R"({"a": 1, "b": 2, "k": [1]})");
  EXPECT_EQ(added("{\"a\": 1,\n \"b\": 2\n}\n"), "{\"a\": 1,\n \"b\": 2,\n \"k\": [1]\n}\n");
  EXPECT_EQ(added("{\n  \"a\": {}\n}"), "{\n  \"a\": {},\n  \"k\": [1]\n}");
  EXPECT_EQ(added(R"({"a":1})"), R"({"a":1, "k": [1]})");
}

TEST(elements, are_set_off_as_those_that_were_there) {
  const auto changed = [](const std::string& text, const std::vector<std::string>& elements) { return with_elements(text, root_of(text), elements); };
  EXPECT_EQ(changed("[]", {"1", "2"}), "[1, 2]");
  EXPECT_EQ(changed("[7]", {}), "[]");
  EXPECT_EQ(changed("[ 7 ]", {"1", "2"}), "[ 1, 2 ]");
  EXPECT_EQ(changed("[\n  7,\n  8\n]", {"1", "2", "3"}), "[\n  1,\n  2,\n  3\n]");
}

}  // namespace
}  // namespace gradledger::testing
