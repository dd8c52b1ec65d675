// What comes before any schema: text that is no JSON, JSON that is too much, files that are none.
#include "sim/base/files.h"
#include "sim/scenario/json_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "sim/base/limits.h"
#include "tests/scenario/documents.h"

namespace gradledger {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

void expect_unreadable(const std::string& text, const std::string& where, const std::string& part_of_message) {
  const auto result = read_json(text);
  ASSERT_FALSE(result) << text;
  EXPECT_EQ(result.error().where, where) << result.error().text() << "\nof " << text;
  EXPECT_NE(result.error().message.find(part_of_message), std::string::npos) << result.error().text();
}

TEST(json_text, that_breaks_off_or_goes_wrong_is_located_by_line_and_column) {
  const std::string not_json = "is not JSON from here on; expected a JSON document in UTF-8";
  expect_unreadable("", "line 1, column 1", not_json);
  expect_unreadable(" \n", "line 2, column 1", not_json);
  expect_unreadable("{", "line 1, column 2", not_json);
  expect_unreadable("{\n  \"a\": 1,\n  \"b\": tru\n}", "line 3, column 11", not_json);
  expect_unreadable("{\"a\": 1,}", "line 1, column 9", not_json);
  expect_unreadable("{'a': 1}", "line 1, column 2", not_json);
  expect_unreadable("[1, 2] 3", "line 1, column 8", not_json);
  expect_unreadable("{\"a\": \"\t\"}", "line 1, column 8", not_json);
  expect_unreadable("[1] // a comment", "line 1, column 5", not_json);
  expect_unreadable("[NaN]", "line 1, column 2", not_json);
  expect_unreadable("[-Infinity]", "line 1, column 3", not_json);
  expect_unreadable("[0x10]", "line 1, column 3", not_json);
  expect_unreadable("[+1]", "line 1, column 2", not_json);
  expect_unreadable("[\"\\ud800\"]", "line 1, column 9", not_json);
}

TEST(json_text, with_bytes_that_are_no_utf8_is_located) {
  expect_unreadable("{\"name\": \"\xff\"}", "line 1, column 11", "in UTF-8");
  expect_unreadable("{\"name\": \"\xc3\"}", "line 1, column 12", "in UTF-8");
  expect_unreadable("{\n\"\xed\xa0\x80\": 1}", "line 2, column 3", "in UTF-8");
  expect_unreadable(std::string("[1]\0[2]", 7), "line 1, column 4", "is a NUL");
  expect_unreadable(std::string("\xff\xfe{\0}\0", 6), "line 1, column 1", "in UTF-8");
}

// Twice as long takes twice the time, not four times: this would take hours.
TEST(json_text, with_a_million_entries_is_read_at_once) {
  std::string text = "[{}";
  for (int i = 1; i < 1'000'000; ++i) text += ",{}";
  const auto entries = read_json(text + "]");
  ASSERT_TRUE(entries);
  EXPECT_EQ(entries->size(), 1'000'000u);
}

TEST(json_text, may_begin_with_a_byte_order_mark) { EXPECT_TRUE(read_json("\xef\xbb\xbf{\"a\": 1}")); }

TEST(json_text, with_a_key_twice_is_located_at_the_second_one) {
  expect_unreadable(R"({"a": 1, "a": 2})", "/a", "appears twice; expected each key once");
  expect_unreadable(R"({"a": {"b": 1}, "c": [0, {"d/e": 1, "f": {}, "d\/e": 1}]})", "/c/1/d~1e", "appears twice");
  expect_unreadable(R"([{"a": 1}, {"a": 1}, {"": 1, "": 2}])", "/2/", "appears twice");
  EXPECT_TRUE(read_json(R"({"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 1}]})"));
}

TEST(json_text, is_read_no_further_than_the_first_thing_that_is_wrong) {
  expect_unreadable(R"({"a": 1, "a": 2, this is no JSON)", "/a", "appears twice");
  expect_unreadable(
      std::string(limits::json_depth_max + 1, '[') + "no JSON",
      [] {
        std::string pointer;
        for (std::uint32_t i = 0; i < limits::json_depth_max; ++i) pointer += "/0";
        return pointer;
      }(),
      "is nested too deeply; expected at most 64 levels");
}

TEST(json_text, is_nested_as_deeply_as_the_limit_and_no_deeper) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(read_json(nested(limits::json_depth_max)));
  EXPECT_FALSE(read_json(nested(limits::json_depth_max + 1)));
  EXPECT_FALSE(read_json(nested(1'000'000)));
  std::string objects;
  for (int i = 0; i < 200'000; ++i) objects += "{\"k\":";
  EXPECT_FALSE(read_json(objects));
}

TEST(json_text, with_a_number_beyond_every_double_is_located) {
  const std::string message = "holds a number that no double can represent; expected a finite one";
  expect_unreadable(R"({"a": [1, 1e999]})", "/a/1", message);
  expect_unreadable(R"({"a": {"b": -1e400}})", "/a/b", message);
  expect_unreadable("1" + std::string(400, '0'), "", message);
  const auto small = read_json("[0." + std::string(999, '0') + "1]");
  ASSERT_TRUE(small);
  EXPECT_EQ((*small)[0], 0.0);
}

TEST(json_text, larger_than_a_file_may_be_is_refused) { expect_unreadable(std::string(limits::file_bytes_max + 1, ' '), "", "expected at most 67108864 bytes"); }

TEST(pointers, escape_what_a_key_may_hold) {
  EXPECT_EQ(pointer_token("a/b~c"), "a~1b~0c");
  EXPECT_EQ(pointer_token("~1"), "~01");
  EXPECT_EQ(pointer_token(""), "");
}

void expect_no_file(const std::filesystem::path& path, const std::string& part_of_message) {
  const auto text = read_file(path);
  ASSERT_FALSE(text) << path;
  EXPECT_EQ(text.error().where, path.string());
  EXPECT_NE(text.error().message.find(part_of_message), std::string::npos) << text.error().text();
}

TEST(files, that_are_none_are_refused_and_never_waited_for) {
  const TemporaryFolder folder;
  expect_no_file(folder.path() / "missing.json", "cannot be read: No such file");
  expect_no_file(folder.path(), "is a directory; expected a file");
  expect_no_file("/dev/zero", "is a device, a pipe or a socket; expected a regular file");
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_no_file(pipe, "is a device, a pipe or a socket; expected a regular file");
  const auto circle = folder.path() / "circle";
  std::filesystem::create_symlink(circle, circle);
  expect_no_file(circle, "cannot be read: Too many levels of symbolic links");
  expect_no_file(folder.write("file", "[]") / "inside", "cannot be read: Not a directory");
  expect_no_file("", "cannot be read: No such file");
}

// Another user for as long as it lives, where the test runs as root, who may read everything.
class AnotherUser {
 public:
  AnotherUser() {
    if (user_ == 0) {
      EXPECT_EQ(seteuid(65534), 0);
    }
  }
  ~AnotherUser() { EXPECT_EQ(seteuid(user_), 0); }

 private:
  uid_t user_ = geteuid();
};

TEST(files, that_may_not_be_read_are_refused) {
  const TemporaryFolder folder;
  const auto path = folder.write("secret", "[]");
  std::filesystem::permissions(folder.path(), std::filesystem::perms{0755});
  std::filesystem::permissions(path, std::filesystem::perms::none);
  const AnotherUser user;
  expect_no_file(path, "cannot be opened; expected a file that may be read");
}

TEST(files, with_a_nul_in_their_name_are_not_those_that_the_name_begins_with) {
  const TemporaryFolder folder;
  const std::string name = folder.write("file", "[]").string() + std::string("\0.json", 6);
  const InputError error = error_of([&]() -> Result<Scenario> {
    const auto text = read_file(name);
    if (text) return Scenario{};
    return text.error();
  }());
  EXPECT_NE(error.message.find("NUL"), std::string::npos) << error.text();
}

TEST(files, that_are_too_large_are_refused_unread) {
  const TemporaryFolder folder;
  const auto path = folder.write("large", "");
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);
  expect_no_file(path, "expected at most 67108864 bytes");
}

TEST(files, of_the_system_that_have_no_size_do_not_hang) {
  const auto text = read_file("/proc/self/status");
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, "");
}

TEST(files, are_read_byte_by_byte) {
  const TemporaryFolder folder;
  const std::string bytes("\0\xff\r\n\x1a", 5);
  const auto text = read_file(folder.write("bytes", bytes));
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, bytes);
}

}  // namespace
}  // namespace gradledger
