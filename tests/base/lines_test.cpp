// Lines of files: what a small file may unpack to has a limit, and everything that is wrong has a place.
#include "sim/base/lines.h"

#include <vector>

#include <gtest/gtest.h>

#include "sim/base/files.h"
#include "tests/support/temporary_folder.h"

namespace gradledger {
namespace {

using testing::TemporaryFolder;

struct Read {
  std::vector<std::string> lines, places;
  std::string error;
};

Read read_lines(const std::string& path, const LineLimits& limits = {}) {
  Read out;
  auto opened = LineReader::open(path, limits);
  if (!opened) {
    out.error = opened.error().text();
    return out;
  }
  LineReader reader = std::move(opened).value();
  while (true) {
    const auto next = reader.next();
    if (!next) out.error = next.error().text();
    if (!next || !*next) break;
    out.lines.push_back(reader.line());
    out.places.push_back(reader.where().substr(path.size()));
  }
  EXPECT_FALSE(*reader.next()) << "what has ended stays so";
  return out;
}

std::string packed(const TemporaryFolder& folder, const std::string& name, const std::vector<std::string>& lines) {
  const std::string path = folder.path() / name;
  auto created = LineWriter::create(path);
  EXPECT_TRUE(created);
  LineWriter writer = std::move(created).value();
  for (const std::string& line : lines) writer.write(line);
  EXPECT_EQ(writer.close(), std::nullopt);
  return path;
}

TEST(lines, are_read_with_their_numbers_blank_ones_left_out) {
  const TemporaryFolder folder;
  const Read read = read_lines(folder.write("a.txt", "\n\none\n \t\r\n\ntwo\r\nthree"));
  EXPECT_EQ(read.lines, (std::vector<std::string>{"one", "two\r", "three"}));
  EXPECT_EQ(read.places, (std::vector<std::string>{":3", ":6", ":7"}));
  EXPECT_EQ(read.error, "");
  EXPECT_TRUE(read_lines(folder.write("b.txt", "")).lines.empty());
  EXPECT_TRUE(read_lines(folder.write("c.txt", "\n\n\n")).lines.empty());
}

TEST(lines, that_were_packed_are_read_whatever_the_name) {
  const TemporaryFolder folder;
  const std::string path = packed(folder, "a.gz", {"one", "", "two"});
  EXPECT_TRUE(read_file(path)->starts_with("\x1f\x8b"));
  EXPECT_EQ(read_lines(path).lines, (std::vector<std::string>{"one", "two"}));
  std::filesystem::rename(path, folder.path() / "a.jsonl");
  EXPECT_EQ(read_lines(folder.path() / "a.jsonl").places, (std::vector<std::string>{":1", ":3"}));
  EXPECT_EQ(*read_file(packed(folder, "plain.jsonl", {"one"})), "one\n");
}

TEST(lines, of_any_length_around_what_is_read_at_a_time_are_whole) {
  const TemporaryFolder folder;
  for (const std::size_t size : {65534u, 65535u, 65536u, 65537u, 131072u, 200000u})
    for (const std::string name : {"a.txt", "a.gz"}) {
      const Read read = read_lines(packed(folder, name, {std::string(size, 'x'), "end"}));
      ASSERT_EQ(read.lines.size(), 2u) << size << read.error;
      EXPECT_EQ(read.lines[0].size(), size);
      EXPECT_EQ(read.lines[1], "end");
    }
}

TEST(lines, before_damage_are_read_and_the_damage_has_a_place) {
  const TemporaryFolder folder;
  std::vector<std::string> lines;
  for (int i = 0; i < 200'000; ++i) lines.push_back(std::to_string(i * 7919));
  const std::string whole = *read_file(packed(folder, "whole.gz", lines));
  const std::string cut = folder.write("cut.gz", whole.substr(0, whole.size() / 2));
  const Read read = read_lines(cut);
  EXPECT_GT(read.lines.size(), 50'000u);
  EXPECT_EQ(read.error, cut + ":" + std::to_string(read.lines.size() + 1) + ": is damaged or cut short here; expected a whole gzip file");
}

TEST(lines, that_are_too_long_end_the_file_before_they_fill_memory) {
  const TemporaryFolder folder;
  const LineLimits limits{.line_bytes = 10, .file_bytes = 1000};
  EXPECT_EQ(read_lines(folder.write("a", "0123456789\n0123456789\n"), limits).lines.size(), 2u);
  const std::string path = folder.write("b", "0123456789\n0123456789x\nnext\n");
  const Read read = read_lines(path, limits);
  EXPECT_EQ(read.lines.size(), 1u);
  EXPECT_EQ(read.error, path + ":2: is longer than 10 bytes");
}

TEST(lines, are_read_up_to_what_a_file_may_unpack_to) {
  const TemporaryFolder folder;
  const LineLimits limits{.line_bytes = 100, .file_bytes = 100'000};
  const std::string path = packed(folder, "a.gz", std::vector<std::string>(1'000'000));
  ASSERT_LT(std::filesystem::file_size(path), limits.file_bytes);
  EXPECT_EQ(read_lines(path, limits).error, path + ": unpacks to more than is read; expected at most 100000 bytes");
  const std::string plain = folder.write("b", std::string(100'001, '\n'));
  EXPECT_EQ(read_lines(plain, limits).error, plain + ": is larger than is read; expected at most 100000 bytes");
}

TEST(lines, that_cannot_be_written_say_so) {
  const TemporaryFolder folder;
  auto full = LineWriter::create("/dev/full");
  ASSERT_TRUE(full);
  LineWriter writer = std::move(full).value();
  writer.write("one");
  ASSERT_TRUE(writer.close());
  EXPECT_FALSE(LineWriter::create(folder.path() / "no" / "such"));
}

}  // namespace
}  // namespace gradledger
