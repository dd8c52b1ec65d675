// Traces that are written while a run is judged, and judged again from the file: the same findings, and no file that is not whole passes.
#include "tests/conformance/traces.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "conformance/trace/base64.h"
#include "conformance/trace/trace_reader.h"
#include "ref/describe.h"
#include "tests/tools/command.h"

namespace gradledger::conform {
namespace {

using nlohmann::json;

std::multiset<std::string> sentences_of(const ref::Verdict& verdict) {
  std::multiset<std::string> out;
  for (const ref::Finding& f : verdict.findings) out.insert(f.sentence);
  return out;
}

std::multiset<std::string> sentences_of(const json& report) {
  std::multiset<std::string> out;
  for (const json& finding : report["findings"]) out.insert(finding["sentence"].get<std::string>());
  return out;
}

// ---- judged again -----------------------------------------------------------------------------------------------------------------------

constexpr const char* judged_again[] = {
    "deepspeed-7985/boundary-leak-before-7985",
    "deepspeed-7985/no-leak-7985",
    "deepspeed-7981/offload-keeps-only-the-last-0.18.9",
    "streams/ping-pong-6993",
    "parameters/gathers-beside-reductions-stage-3-0.18.9",
};

class a_trace : public ::testing::TestWithParam<const char*> {};

TEST_P(a_trace, has_the_findings_that_the_run_had_when_it_was_written) {
  for (const char* name : {"trace.jsonl", "trace.jsonl.gz"}) {
    const WrittenTrace trace(GetParam(), name);
    const testing::Outcome judged = testing::run({"judge", trace.path, "--json"});
    EXPECT_EQ(judged.code, trace.verdict.findings.empty() ? 0 : 1) << judged.err;
    const json report = testing::json_of(testing::lines_of(judged.out).at(0));
    EXPECT_EQ(sentences_of(report), sentences_of(trace.verdict));
    EXPECT_EQ(report["coverage"]["judged"], trace.verdict.coverage.judged);
    EXPECT_EQ(report["producer"], "trace of host (gradledger 0)");
    EXPECT_EQ(report["passes"]["decode"], trace.verdict.decode_passes);
  }
}

INSTANTIATE_TEST_SUITE_P(of_the_corpus, a_trace, ::testing::ValuesIn(judged_again), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

TEST(a_trace_file, is_the_same_for_the_same_run) {
  const WrittenTrace one("deepspeed-7985/no-leak-7985", "one.gz"), other("deepspeed-7985/no-leak-7985", "one.gz");
  EXPECT_EQ(*read_file(one.path), *read_file(other.path));
}

// ---- beside the simulator ---------------------------------------------------------------------------------------------------------------

TEST(a_trace_of_the_simulator, agrees_with_the_simulator) {
  const WrittenTrace trace("deepspeed-7985/boundary-leak-before-7985");
  const testing::Outcome outcome = testing::run({"conform", trace.path});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("agrees ")) << outcome.out;
  EXPECT_EQ(outcome.out.find(" 0 elements"), std::string::npos) << outcome.out;
}

// The first line that shows something in this role.
std::size_t line_with_role(const WrittenTrace& trace, const std::string& role) {
  for (std::size_t i = 0; i < trace.lines.size(); ++i)
    if (trace.lines[i].find("\"role\":\"" + role + "\"") != std::string::npos) return i;
  ADD_FAILURE() << "nothing is shown as " << role;
  return 0;
}

TEST(a_trace_of_the_simulator, differs_where_one_bit_of_an_applied_gradient_or_a_weight_does) {
  const WrittenTrace trace("deepspeed-7985/no-leak-7985");
  for (const char* role : {"applied", "parameter"}) {
    std::vector<std::string> lines = trace.lines;
    std::string& line = lines[line_with_role(trace, role)];
    json record = json::parse(line);
    auto bytes = *bytes_of_base64(record["data"].get<std::string>());
    bytes[0] ^= std::byte{1};
    record["data"] = base64_of(bytes);
    line = record.dump();
    const testing::Outcome outcome = testing::run({"conform", trace.with(lines)});
    EXPECT_EQ(outcome.code, 1) << outcome.out;
    EXPECT_NE(outcome.out.find(std::string(": ") + role + " "), std::string::npos) << outcome.out;
  }
}

TEST(a_trace_with_an_altered_gradient, is_no_longer_clean) {
  const WrittenTrace trace("deepspeed-7985/no-leak-7985");
  std::vector<std::string> lines = trace.lines;
  json record = json::parse(lines[line_with_role(trace, "applied")]);
  record["data"] = base64_of(std::vector<std::byte>(bytes_of_base64(record["data"].get<std::string>())->size()));
  lines[line_with_role(trace, "applied")] = record.dump();
  EXPECT_EQ(testing::run({"judge", trace.path}).code, 0);
  EXPECT_EQ(testing::run({"judge", trace.with(lines)}).code, 1);
}

// ---- what is no trace -------------------------------------------------------------------------------------------------------------------

// Bad input, by both verbs, in one line with the place.
void expect_refused(const std::string& file, const std::string& part) {
  for (const char* verb : {"judge", "conform"}) {
    const testing::Outcome outcome = testing::run({verb, file});
    EXPECT_EQ(outcome.code, 2) << verb << ": " << outcome.out;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err << "expected: " << part;
    EXPECT_EQ(testing::lines_of(outcome.err).size(), 1u) << outcome.err;
  }
}

TEST(a_trace_that_is_cut_off, is_noticed_after_any_line) {
  const WrittenTrace trace("deepspeed-7985/no-leak-7985");
  for (const std::size_t kept : {std::size_t{1}, std::size_t{2}, trace.lines.size() / 2, trace.lines.size() - 1})
    expect_refused(trace.with({trace.lines.begin(), trace.lines.begin() + static_cast<std::ptrdiff_t>(kept)}), "is the end of the file and not of the trace");
}

TEST(a_trace_that_is_malformed, is_refused_with_the_place) {
  const WrittenTrace trace("deepspeed-7985/no-leak-7985");
  const std::size_t shown = line_with_role(trace, "applied");
  const struct {
    std::size_t line;
    const char* patch;
    std::string error;
  } mistakes[] = {
      {0, R"([{"op": "replace", "path": "/gradledger_trace", "value": 2}])", ":1: /gradledger_trace: is a version that is not known here; expected 1"},
      {0, R"([{"op": "remove", "path": "/scenario"}])", ":1: lacks \"scenario\""},
      {0, R"([{"op": "replace", "path": "/scenario/world_size", "value": 0}])", ":1: /scenario/world_size: is 0"},
      {0, R"([{"op": "add", "path": "/scenario/gradients", "value": {"kind": "values", "file": "/etc/passwd"}}])", "/scenario/gradients/file: names another file"},
      {0, R"([{"op": "add", "path": "/capabilities/clairvoyant", "value": true}])", ":1: /capabilities/clairvoyant: is not known here"},
      {1, R"([{"op": "replace", "path": "/pass", "value": 1}])", ":2: /pass: is not the number of the next pass, 0"},
      {shown, R"([{"op": "replace", "path": "/event", "value": 99999}])", "/event: is 99999; expected a whole number from 0 to"},
      {shown, R"([{"op": "replace", "path": "/rank", "value": 4}])", "/rank: is 4; expected a whole number from 0 to 3"},
      {shown, R"([{"op": "replace", "path": "/role", "value": "king"}])", "/role: is no such name that is known here"},
      {shown, R"([{"op": "add", "path": "/colour", "value": 1}])", "/colour: is not a key that is known here"},
      {shown, R"([{"op": "replace", "path": "/data", "value": "AAAA"}])", "/data: has 3 bytes; expected"},
      {shown, R"([{"op": "replace", "path": "/data", "value": "?"}])", "/data: is no base64"},
      {shown, R"([{"op": "replace", "path": "/pieces/0/0", "value": 77}])", "/pieces/0/0: is 77; expected a whole number"},
      {shown, R"([{"op": "replace", "path": "/pieces/0/1", "value": 4000000000}])", "/pieces/0: lies beyond its parameter"},
      {trace.lines.size() - 1, R"([{"op": "replace", "path": "/passes", "value": 1}])", "/passes: is not the number of passes that there are"},
  };
  for (const auto& mistake : mistakes) {
    std::vector<std::string> lines = trace.lines;
    lines[mistake.line] = json::parse(lines[mistake.line]).patch(json::parse(mistake.patch)).dump();
    expect_refused(trace.with(lines), mistake.error);
  }
  std::vector<std::string> more = trace.lines;
  more.push_back(more.back());
  expect_refused(trace.with(more), "comes after the last line of the trace");
  std::vector<std::string> headless(trace.lines.begin() + 1, trace.lines.end());
  headless.insert(headless.begin(), trace.lines.front());
  headless.erase(headless.begin() + 1);
  expect_refused(trace.with(headless), "stands in no pass");
}

TEST(a_trace_file, says_which_communicator_a_call_is_of_where_it_is_not_the_first) {
  const WrittenTrace trace("parameters/gathers-beside-reductions-stage-3-0.18.9");
  const std::string of_second = R"("communicator":1)";
  std::vector<std::string> lines = trace.lines;
  const auto call = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) { return line.find(of_second) != std::string::npos; });
  ASSERT_NE(call, lines.end());
  call->replace(call->find(of_second), of_second.size(), R"("communicator":8)");
  expect_refused(trace.with(lines), "/communicator: is 8; expected a whole number from 0 to 7");
}

TEST(a_trace_of_other_passes, than_the_oracle_asks_for_is_refused_and_says_so) {
  const WrittenTrace trace("deepspeed-7985/no-leak-7985");
  std::vector<std::string> lines = trace.lines;
  const std::string seed = "\"seed\":3";
  const std::size_t at = lines[0].rfind(seed);
  ASSERT_NE(at, std::string::npos);
  lines[0].replace(at, seed.size(), "\"seed\":4");
  expect_refused(trace.with(lines), "holds no pass with the gradients that the oracle asks for");
}

TEST(a_trace_that_asks_for_more_memory, than_it_may_have_is_refused) {
  const WrittenTrace trace("deepspeed-7985/no-leak-7985");
  const testing::Outcome outcome = testing::run({"judge", trace.path, "--memory-limit", "1kb"});
  EXPECT_EQ(outcome.code, 4) << "as a replay";
  EXPECT_NE(outcome.err.find("--memory-limit"), std::string::npos) << outcome.err;
  std::vector<std::string> lines(trace.lines.begin(), trace.lines.begin() + 2);
  lines.insert(lines.end(), 200'000, trace.lines.at(2));
  const testing::Outcome many = testing::run({"judge", trace.with(lines), "--memory-limit", "16mb"});
  EXPECT_EQ(many.code, 2);
  EXPECT_NE(many.err.find("makes the trace take more memory than a judgement may"), std::string::npos) << many.err;
}

TEST(bytes_as_text, come_back_as_they_were) {
  std::vector<std::byte> bytes;
  for (int n = 0; n < 300; ++n) {
    EXPECT_EQ(bytes_of_base64(base64_of(bytes)), bytes) << n;
    bytes.push_back(static_cast<std::byte>(n * 37));
  }
  EXPECT_EQ(base64_of(std::as_bytes(std::span("Man", 3))), "TWFu");
  EXPECT_EQ(base64_of(std::as_bytes(std::span("Ma", 2))), "TWE=");
  for (const char* none : {"A", "AAA", "A===", "AA=A", "AA A", "AB==", "====", "AAAA=="}) EXPECT_FALSE(bytes_of_base64(none)) << none;
}

}  // namespace
}  // namespace gradledger::conform
