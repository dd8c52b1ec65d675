// Recordings that are made to harm: each gets one clear error, soon and within little memory.
#include <sys/stat.h>

#include <algorithm>

#include "conformance/files.h"
#include "sim/base/limits.h"
#include "sim/base/hash.h"
#include "sim/base/lines.h"
#include "tests/conformance/recordings.h"
#include "tests/support/sanitized.h"
#include "tests/tools/command.h"

namespace gradledger::conform {
namespace {

using testing::shell;
using testing::TemporaryFolder;

// What the command may take for a file of some kilobytes: memory, but with sanitizers, which take more than there is; and time, on a slow machine
// that has other things to do.
constexpr const char* bounds = testing::sanitized ? "timeout 120 " : "ulimit -v 786432 && timeout 120 ";

testing::Outcome run_bounded(const std::vector<std::string>& arguments) {
  std::string line = std::string(bounds) + "gradledger";
  for (const std::string& argument : arguments) line += " '" + argument + "'";
  return shell(line);
}

std::string repeated(const std::string& before, const std::string& part, std::size_t bytes, const std::string& after) {
  std::string out = before;
  while (out.size() + part.size() + after.size() <= bytes) out += part;
  return out + after;
}

// gzip of many times `part`: members that follow each other, so that the part is packed once.
std::string packed(const TemporaryFolder& folder, const std::string& name, const std::string& part, std::size_t times) {
  const std::string member = folder.path() / "member.gz";
  EXPECT_FALSE(write_gzip_lines(member, {part}));
  const std::string packed_part = testing::text_of(member);
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += packed_part;
  return folder.write(name, out);
}

class hostile_recordings : public ::testing::TestWithParam<const char*> {
 protected:
  // One line of error, and nothing that could be taken for a verdict.
  void expect_refused(const std::string& file, const std::string& part) const {
    const testing::Outcome outcome = run_bounded({GetParam(), file});
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }

  TemporaryFolder folder_;
};

TEST_P(hostile_recordings, that_are_pipes_devices_or_links_in_circles_are_not_waited_for) {
  const std::string pipe = folder_.path() / "pipe", circle = folder_.path() / "circle";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("circle", circle);
  expect_refused(pipe, pipe + ": is a device, a pipe or a socket; expected a regular file");
  expect_refused("/dev/zero", "is a device, a pipe or a socket; expected a regular file");
  expect_refused(circle, circle + ": cannot be read: Too many levels of symbolic links");
  expect_refused(folder_.path(), "is a directory; expected a file");
}

// 64 KiB of gzip that unpack to a line of 64 MiB, which would be gigabytes of values.
TEST_P(hostile_recordings, that_stand_for_more_values_than_memory_holds_are_refused) {
  const std::string what = "makes the document larger in memory than is read; expected fewer values";
  for (const std::string part : {"[],", "0,", "\"\",", "{\"\":0},"}) {
    if (testing::sanitized && part[0] != (GetParam()[0] == 'j' ? '[' : '{')) continue;  // the same reader, and each takes seconds
    std::string values = repeated("[", part, limits::file_bytes_max - 1, "0]");
    const std::string file = folder_.path() / "values.gz";
    ASSERT_FALSE(write_gzip_lines(file, {values}));
    ASSERT_LT(std::filesystem::file_size(file), 200'000u);
    expect_refused(file, what);
  }
}

TEST_P(hostile_recordings, of_nothing_but_line_ends_are_left_soon) {
  const std::string lines((1u << 20) - 1, '\n');
  const std::string file = packed(folder_, "lines.gz", lines, 512);
  ASSERT_LT(std::filesystem::file_size(file), 1u << 20);
  expect_refused(file, file + ": holds no recording; judging nothing does not pass");
  const std::string longer = packed(folder_, "longer.gz", lines, (limits::unpacked_bytes_max >> 20) + 1);
  expect_refused(longer, longer + ": unpacks to more than is read; expected at most 1073741824 bytes");
}

TEST_P(hostile_recordings, that_are_larger_than_is_read_are_refused_unread) {
  const std::string file = folder_.write("large.jsonl", "");
  std::filesystem::resize_file(file, std::uintmax_t{1} << 40);
  expect_refused(file, "is larger than is read; expected at most 1073741824 bytes");
}

TEST_P(hostile_recordings, of_nothing_that_can_be_read_are_given_up_after_some_lines) {
  const std::string file = folder_.write("garbage.jsonl", repeated("", "garbage\n", 1 << 20, ""));
  const testing::Outcome bounded = run_bounded({GetParam(), file});
  EXPECT_EQ(bounded.code, 2);
  EXPECT_EQ(std::count(bounded.err.begin(), bounded.err.end(), '\n'), 101);
  EXPECT_NE(bounded.err.find(file + ": is given up after 100 lines that cannot be read"), std::string::npos);
}

TEST_P(hostile_recordings, of_random_bytes_or_of_a_line_without_end_are_left_at_once) {
  std::string bytes;
  SplitMix64 random(1);
  while (bytes.size() < 1 << 20) bytes += static_cast<char>(random.below(256));
  bytes[0] = 'x';  // no gzip
  expect_refused(folder_.write("random", bytes), "holds bytes that no text has; expected JSON lines, plain or gzip");
  expect_refused(folder_.write("random.gz", bytes), "is damaged or cut short here; expected a whole gzip file");
  const std::string endless = packed(folder_, "endless.gz", std::string(1 << 20, ' '), 1);
  const std::string part = testing::text_of(endless);
  const std::string file = folder_.path() / "line.gz";
  ASSERT_FALSE(write_gzip_lines(file, {std::string(limits::file_bytes_max + 1, 'x')}));
  expect_refused(file, "line.gz:1: is longer than 67108864 bytes");
  expect_refused(folder_.write("half.gz", part.substr(0, part.size() / 2)), "is damaged or cut short here; expected a whole gzip file");
}

// A line of some megabytes, whose judgement would take hours.
TEST_P(hostile_recordings, of_endless_scripts_are_done_with_soon) {
  std::string operations, moments;
  for (int step = 0; step < (testing::sanitized ? 20'000 : 100'000); ++step) {
    operations += R"(["fb",0],["step"],)";
    moments += R"({},{"weights":[0]},)";
  }
  operations.pop_back();
  moments.pop_back();
  const std::string file = folder_.write(
      "long.jsonl", R"({"format": "gradledger recording 1", "name": "long", "version": "0.19.6", "world": 1, "sizes": [1], "config": {"gradient_accumulation_steps": 1,)"
                    R"( "zero_optimization": {"stage": 2}}, "micro_batches": 1, "gradients": [[0]], "vectors": [[1]], "operations": [)" +
                        operations + "], \"ranks\": [[" + moments + "]]}\n");
  const testing::Outcome outcome = testing::shell("timeout 120 gradledger " + std::string(GetParam()) + " '" + file + "'");
  EXPECT_EQ(outcome.code, std::string(GetParam()) == "judge" ? 2 : 1) << outcome.err;
  if (std::string(GetParam()) == "judge") {
    EXPECT_NE(outcome.out.find("has more events than are judged together; expected at most 16384, times ranks"), std::string::npos) << outcome.out;
  }
}

TEST_P(hostile_recordings, cannot_write_to_the_terminal_what_they_like) {
  RecordedRun run = run_named("rounding", "accdtype_fp32_z2", "head");
  run.name = "\x1b[2Jname\nagrees";
  for (auto& moments : run.ranks) moments.resize(1);
  for (auto& moments : run.ranks) moments[0].error = "Error: \x1b[31m" + std::string(1 << 20, 'e');
  const testing::Outcome outcome = testing::run({GetParam(), folder_.write("run.jsonl", to_recorder_format(run).dump() + "\n")});
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);
  EXPECT_LT(outcome.out.size(), 20'000u);
  EXPECT_NE(outcome.out.find("[2Jname agrees"), std::string::npos) << outcome.out;
}

TEST_P(hostile_recordings, make_no_report_pass_that_is_lost) {
  const std::string call = std::string("gradledger ") + GetParam() + " '" + data_file("fp16_overflow") + "'";
  EXPECT_EQ(shell(call + " >/dev/full").code, 2);
  EXPECT_NE(shell(call + " >/dev/full").err.find("gradledger: "), std::string::npos);
  EXPECT_EQ(shell(call + " >&-").code, 2);
  EXPECT_EQ(shell(call + " <&- >&- 2>&-").code, 2);
}

INSTANTIATE_TEST_SUITE_P(of_every_verb, hostile_recordings, ::testing::Values("conform", "judge"), [](const auto& info) { return std::string(info.param); });

// ---- the others that read files ---------------------------------------------------------------------------------------------------------

TEST(hostile_scenarios, that_stand_for_more_values_than_memory_holds_are_refused) {
  const TemporaryFolder folder;
  const std::string file = folder.write("values.json", repeated("[", "{\"\":0},", limits::file_bytes_max, "0]"));
  for (const char* verb : {"gate", "replay"}) {
    if (testing::sanitized && verb[0] == 'r') continue;  // the same reader, and a quarter of a minute
    const testing::Outcome bounded = run_bounded({verb, file});
    EXPECT_EQ(bounded.code, 2) << verb;
    EXPECT_NE((bounded.out + bounded.err).find("makes the document larger in memory than is read"), std::string::npos) << verb;
  }
}

TEST(hostile_outputs, are_no_pipes_that_nobody_reads) {
  const TemporaryFolder folder;
  const std::string pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const testing::Outcome bounded = run_bounded({"replay", testing::clean_scenario, "--trace", pipe});
  EXPECT_EQ(bounded.code, 2);
  EXPECT_NE(bounded.err.find("cannot be written: nobody reads this pipe"), std::string::npos) << bounded.err;
}

}  // namespace
}  // namespace gradledger::conform
