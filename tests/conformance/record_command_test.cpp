// gradledger record as it is called: the trace that it writes is judged as its scenario is replayed, and what it cannot write is no success.
#include <sys/stat.h>

#include "tests/conformance/traces.h"
#include "tests/tools/command.h"

namespace gradledger::conform {
namespace {

using nlohmann::json;

class record_command : public ::testing::Test {
 protected:
  testing::Outcome record(const std::string& scenario, const std::string& into) const { return testing::run({"record", scenario, "--output", into}); }

  // But for who ran it and how it is called.
  static json report_of(const std::vector<std::string>& arguments) {
    json out = testing::json_of(testing::lines_of(testing::run(arguments).out).at(0));
    for (const char* key : {"command", "file", "producer", "not_in_the_trace", "seconds"}) out.erase(key);
    for (json& finding : out["findings"]) {
      for (const char* key : {"file", "line", "column"}) finding.erase(key);  // of the scenario's file, which is not there
      if (finding["race"].is_object()) finding["race"].erase("command");
    }
    return out;
  }

  testing::TemporaryFolder folder_;
  const std::string trace_ = folder_.path() / "trace.jsonl.gz";
};

TEST_F(record_command, writes_a_trace_that_is_judged_as_its_scenario_is_replayed) {
  for (const std::string& scenario : {testing::clean_scenario, testing::leaking_scenario, scenario_file("streams/ping-pong-6993").string()}) {
    const testing::Outcome written = record(scenario, trace_);
    EXPECT_EQ(written.code, 0) << written.err;
    EXPECT_TRUE(written.out.starts_with("written             " + trace_ + ": ")) << written.out;
    EXPECT_NE(written.out.find("\njudge it with: gradledger judge " + trace_ + "\n"), std::string::npos) << written.out;
    EXPECT_EQ(testing::run({"judge", trace_}).code, testing::run({"replay", scenario}).code);
    EXPECT_EQ(report_of({"judge", trace_, "--json"}).dump(1), report_of({"replay", scenario, "--executor", "numeric", "--json"}).dump(1));
  }
}

TEST_F(record_command, has_its_seed_in_the_trace) {
  EXPECT_EQ(testing::run({"record", testing::leaking_scenario, "-o", trace_, "--seed", "7"}).code, 0);
  EXPECT_EQ(report_of({"judge", trace_, "--json"}), report_of({"replay", testing::leaking_scenario, "--seed", "7", "--executor", "numeric", "--json"}));
}

TEST_F(record_command, says_what_it_wrote_as_json_too) {
  const json written = testing::record_of(testing::run({"record", testing::clean_scenario, "-o", trace_, "--json"}));
  EXPECT_EQ(written["trace"], trace_);
  EXPECT_GT(written["passes"], 1);
  EXPECT_EQ(written["judge"], "gradledger judge " + trace_);
}

TEST_F(record_command, makes_no_trace_pass_that_is_lost) {
  testing::expect_complaint(record(testing::clean_scenario, "/dev/full"), 2, "--output: /dev/full: cannot be written to its end: No space left on device");
  testing::expect_complaint(record(testing::clean_scenario, folder_.path() / "none" / "trace"), 2, "cannot be written: No such file or directory");
  testing::expect_complaint(record(testing::clean_scenario, folder_.path()), 2, "cannot be written: Is a directory");
  const std::string pipe = folder_.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  testing::expect_complaint(record(testing::clean_scenario, pipe), 2, "cannot be written: nobody reads this pipe");
  const std::string call = "gradledger record '" + testing::clean_scenario + "' -o '" + trace_ + "'";
  EXPECT_EQ(testing::shell(call + " >/dev/full").code, 2);
  EXPECT_EQ(testing::shell(call + " >&-").code, 2);
}

TEST_F(record_command, leaves_nothing_of_a_trace_that_does_not_fit) {
  const std::string before = folder_.write("before.jsonl", "{}\n"), after = folder_.path() / "after.jsonl";
  for (const std::string& into : {before, after}) {
    const testing::Outcome cut = testing::shell("ulimit -f 1; gradledger record '" + testing::clean_scenario + "' -o '" + into + "'");
    testing::expect_complaint(cut, 2, "--output: " + into + ": cannot be written to its end: File too large");
  }
  EXPECT_EQ(testing::text_of(before), "{}\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1) << "what was there";
}

TEST_F(record_command, leaves_the_scenario_as_it_is_where_it_is_told_to_write_into_it) {
  const std::string text = testing::text_of(testing::clean_scenario), copy = folder_.write("scenario.json", text);
  testing::expect_complaint(record(copy, copy), 2, "--output: " + copy + " is the scenario; expected a file of its own");
  EXPECT_EQ(testing::text_of(copy), text);
}

TEST_F(record_command, is_not_available_where_the_framework_or_the_memory_is_not) {
  testing::expect_complaint(testing::run({"record", testing::clean_scenario, "-o", trace_, "--memory-limit", "1kb"}), 4, "--memory-limit");
  EXPECT_FALSE(std::filesystem::exists(trace_)) << "nothing was run";
}

}  // namespace
}  // namespace gradledger::conform
