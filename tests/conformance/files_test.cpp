// Files of recordings: every way in which one can be broken is one error that names it, and conversion loses nothing.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "sim/base/limits.h"
#include "tests/conformance/recordings.h"
#include "conformance/compact_format.h"
#include "conformance/convert.h"
#include "conformance/files.h"

namespace gradledger::conform {
namespace {

class recording_files : public ::testing::Test {
 protected:
  recording_files() : folder_(std::filesystem::temp_directory_path() / ("gradledger-files-" + std::to_string(getpid()))) { std::filesystem::create_directories(folder_); }
  ~recording_files() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string written(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }

  static std::string content(const std::string& path) {
    std::ostringstream out;
    out << std::ifstream(path, std::ios::binary).rdbuf();
    return out.str();
  }

  // The error, and how many lines came before it.
  static std::pair<std::string, int> lines_of(const std::string& path) {
    int lines = 0;
    const auto error = for_each_line(path, [&](const std::string&, const std::string&) -> std::optional<InputError> {
      ++lines;
      return std::nullopt;
    });
    return {error ? error->text() : "", lines};
  }

  std::filesystem::path folder_;
};

TEST_F(recording_files, are_read_plain_or_compressed_with_blank_lines_left_out) {
  const std::string plain = written("a.jsonl", "{}\n\n  \r\n{\"a\": 1}");
  EXPECT_EQ(lines_of(plain), std::pair(std::string(), 2));
  ASSERT_FALSE(write_gzip_lines(path("a.jsonl.gz"), {"{}", "[]", ""}));
  EXPECT_EQ(lines_of(path("a.jsonl.gz")), std::pair(std::string(), 2));
}

TEST_F(recording_files, name_the_line_of_an_error) {
  const std::string file = written("b.jsonl", "{}\n\n{\"a\": }\n");
  const auto error = for_each_run(file, [](const RecordedRun&, const std::string&) { return std::nullopt; });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->where, file + ":1");
  const std::string broken = written("c.jsonl", "\n{\"a\": }\n");
  const auto syntax = for_each_run(broken, [](const RecordedRun&, const std::string&) { return std::nullopt; });
  ASSERT_TRUE(syntax);
  EXPECT_EQ(syntax->where, broken + ":2");
}

TEST_F(recording_files, that_are_missing_folders_or_hold_nothing_are_errors) {
  EXPECT_EQ(lines_of(path("none")).first, path("none") + ": cannot be read: No such file or directory");
  EXPECT_EQ(lines_of(folder_.string()).first, folder_.string() + ": is a directory; expected a file");
  for (const char* text : {"", "\n", " \n\t\n"}) {
    const std::string file = written("blank.jsonl", text);
    EXPECT_EQ(lines_of(file).first, file + ": holds no recording; judging nothing does not pass");
  }
  ASSERT_FALSE(write_gzip_lines(path("blank.gz"), {}));
  EXPECT_EQ(lines_of(path("blank.gz")).first, path("blank.gz") + ": holds no recording; judging nothing does not pass");
}

// Cut anywhere: in the header, between blocks, in the checksum.
TEST_F(recording_files, cut_short_at_any_byte_are_errors) {
  ASSERT_FALSE(write_gzip_lines(path("whole.gz"), {R"({"a": [1, 2, 3]})", R"({"b": 4})"}));
  const std::string whole = content(path("whole.gz"));
  for (std::size_t size = 1; size < whole.size(); ++size) {
    const std::string cut = written("cut.gz", whole.substr(0, size));
    EXPECT_TRUE(lines_of(cut).first.starts_with(cut + ":")) << size << " of " << whole.size() << " bytes: " << lines_of(cut).first;
  }
}

TEST_F(recording_files, with_a_flipped_bit_or_bytes_behind_the_end_are_errors) {
  ASSERT_FALSE(write_gzip_lines(path("whole.gz"), {R"({"a": [1, 2, 3]})"}));
  const std::string whole = content(path("whole.gz"));
  // Without the header, whose time and system say nothing, and the length at the end: the checksum before it covers the content.
  for (std::size_t at = 10; at < whole.size() - 4; ++at) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    EXPECT_NE(lines_of(written("flipped.gz", flipped)).first, "") << at;
  }
  EXPECT_NE(lines_of(written("behind.gz", whole + "more")).first, "");
  EXPECT_NE(lines_of(written("text.gz", "{}\n")).first, "");
}

TEST_F(recording_files, with_a_line_that_never_ends_are_refused_before_they_fill_memory) {
  ASSERT_FALSE(write_gzip_lines(path("long.gz"), {std::string(limits::file_bytes_max, ' '), std::string(limits::file_bytes_max + 1, 'x')}));
  EXPECT_LT(std::filesystem::file_size(path("long.gz")), limits::file_bytes_max / 64);
  EXPECT_EQ(lines_of(path("long.gz")).first, path("long.gz") + ":2: is longer than 67108864 bytes");
}

// ---- conversion -------------------------------------------------------------------------------------------------------------------------

TEST_F(recording_files, are_converted_without_loss_and_always_to_the_same_bytes) {
  const std::vector<RecordedRun> runs = runs_of("rounding");
  std::string raw;
  for (const RecordedRun& run : runs) raw += to_recorder_format(run).dump() + "\n";
  const std::string recorded = written("recorded.jsonl", raw);
  const auto converted = convert({recorded}, path("once.jsonl.gz"), {});
  ASSERT_TRUE(converted) << converted.error().text();
  EXPECT_EQ(converted->read, 52u);
  EXPECT_EQ(converted->written, 52u);
  ASSERT_TRUE(convert({path("once.jsonl.gz")}, path("twice.jsonl.gz"), {}));
  EXPECT_EQ(content(path("once.jsonl.gz")), content(path("twice.jsonl.gz")));
  EXPECT_EQ(content(path("once.jsonl.gz")), content(data_file("rounding")));
}

TEST_F(recording_files, are_converted_in_the_part_that_is_asked_for) {
  const std::vector<std::string> from{data_file("rounding"), written("zenflow.jsonl", lines_that_cannot_be_expressed(18))};
  const auto count = [&](const Selection& selection) { return convert(from, path("part.gz"), selection)->written; };
  EXPECT_EQ(count({}), 52u + 18);
  EXPECT_EQ(count({Keep::expressible, ""}), 52u);
  EXPECT_EQ(count({Keep::inexpressible, ""}), 18u);
  EXPECT_EQ(count({Keep::inexpressible, "zenflow"}), 18u);
  const auto nothing = convert(from, path("part.gz"), {Keep::inexpressible, "moonshine"});
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().text(), path("part.gz") + ": would be empty: none of 70 runs is to be kept");
}

TEST_F(recording_files, that_cannot_be_converted_are_errors_with_their_place) {
  const auto broken = convert({written("broken.jsonl", "{}\n")}, path("out.gz"), {});
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().text(), path("broken.jsonl") + ":1: lacks \"spec\"");
  EXPECT_FALSE(std::filesystem::exists(path("out.gz")));
  const auto unwritable = convert({data_file("rounding")}, path("none/out.gz"), {});
  ASSERT_FALSE(unwritable);
  EXPECT_EQ(unwritable.error().text(), path("none/out.gz") + ": cannot be written: No such file or directory");
}

}  // namespace
}  // namespace gradledger::conform
