// Why a text is no JSON, in the words of whoever wrote it.
#include "sim/scenario/syntax_cause.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "sim/scenario/json_reader.h"

namespace gradledger::testing {
namespace {

std::string complaint_of(const std::string& text) {
  const auto read = read_json(text);
  return read.ok() ? "" : read.error().message;
}

TEST(a_syntax_error, names_its_cause_where_it_is_a_usual_one) {
  const std::vector<std::pair<std::string, std::string>> usual{
      {R"({"a": 1,})", "a comma stands before the closing bracket"},
      {"{\"a\": [1, 2,\n ]}", "a comma stands before the closing bracket"},
      {"{\"a\": 1 // two\n}", "JSON has no comments"},
      {"/* a */ {}", "JSON has no comments"},
      {"{\"a\": 1 # two\n}", "JSON has no comments"},
      {"{'a': 1}", "strings stand in double quotes"},
      {R"({"a": NaN})", "NaN is no JSON number"},
      {R"({"a": -Infinity})", "Infinity is no JSON number"},
      {R"({"a": True})", "JSON writes true with a small letter"},
      {R"({"a": None})", "JSON writes null for None"},
      {R"({"a": 1 "b": 2})", "a comma is missing before this"},
      {"{a: 1}", "names stand in double quotes"},
      {R"({"a": [1, 2)", "the text ends before its last bracket is closed"},
  };
  for (const auto& [text, cause] : usual) EXPECT_NE(complaint_of(text).find("; " + cause), std::string::npos) << text << "\n" << complaint_of(text);
}

TEST(a_syntax_error, is_given_no_cause_that_it_may_not_have) {
  for (const char* text : {"{\"a\" 1}", "{\"a\": 1]", "@"}) {
    EXPECT_NE(complaint_of(text), "") << text;
    EXPECT_EQ(complaint_of(text).find(';', complaint_of(text).find("expected")), std::string::npos) << complaint_of(text);
  }
}

TEST(a_syntax_error, has_no_cause_beyond_the_text) {
  for (const std::string text : {"", "\xEF\xBB\xBF", "{"})
    for (std::size_t byte = 0; byte < 6; ++byte) EXPECT_NO_THROW(syntax_cause(text, byte));
}

}  // namespace
}  // namespace gradledger::testing
