// Traces of a run that is over, as whoever looked at a training loop writes them: given gradients, one pass, and a contract.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "conformance/trace/base64.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/command.h"

namespace gradledger::conform::observed_loop {
namespace {

using nlohmann::json;

constexpr int world = 2, micro_batches = 2, numel = 6;

// In fp32: each contribution has an element to itself, and shares the last ones.
float probe(int rank, int micro_batch, int element) {
  const int number = micro_batch * world + rank, alone = world * micro_batches;
  if (element < alone) return element == number ? static_cast<float>(17 + 2 * number) : 0;
  return static_cast<float>(17 + 2 * ((5 * number + 3 * element) % 8));
}

// A window on two ranks with 4, 2, 6 and 1 tokens, whose losses a loop multiplies by `weights`, by rank and micro-batch.
json scenario(const json& weights, const json& contract) {
  json table = json::array();
  for (int m = 0; m < micro_batches; ++m)
    for (int r = 0; r < world; ++r) {
      json row = json::array();
      for (int e = 0; e < numel; ++e) row.push_back(probe(r, m, e));
      table[m][r]["w"] = row;
    }
  return {{"name", "observed"},
          {"world_size", world},
          {"parameters", {{{"name", "w"}, {"numel", numel}}}},
          {"engine", {{"framework", "external"}, {"config", json::object()}}},
          {"gradients", {{"kind", "values"}, {"micro_batches", table}}},
          {"tokens", {{"table", json::parse("[[[4, 2], [6, 1]]]")}}},
          {"contract", contract},
          {"script", {{{"backward", {{"micro_batches", micro_batches}, {"weight", weights}}}}, {{"step", json::object()}}}}};
}

// Every rank is given the mean over ranks of what losses were multiplied by.
std::string trace(const json& scenario, const std::function<double(int, int)>& weight) {
  std::vector<float> given(numel);
  for (int e = 0; e < numel; ++e)
    for (int r = 0; r < world; ++r)
      for (int m = 0; m < micro_batches; ++m) given[e] += static_cast<float>(weight(r, m) / world * static_cast<double>(probe(r, m, e)));
  std::vector<json> lines{{{"gradledger_trace", 1},
                           {"scenario", scenario},
                           {"driver", "observe"},
                           {"versions", json::object()},
                           {"capabilities", {{"applied_gradients", true}, {"accumulators", false}, {"wide", false}, {"one_pass", true}, {"few_runs", false}}}},
                          {{"pass", 0}, {"key", "0000000000000000"}}};
  for (int r = 0; r < world; ++r)
    for (int event = 0; event <= micro_batches; ++event) {
      if (event == micro_batches) {
        lines.push_back({{"event", event}, {"rank", r}, {"at_end", false}, {"buffer", "gradients"}, {"role", "applied"}, {"data", base64_of(std::as_bytes(std::span(given)))}});
        lines.back()["pieces"] = json::array({json::array({0, 0, numel, "fp32"})});
      }
      lines.push_back({{"done", {{"rank", r}, {"event", event}}}});
    }
  lines.push_back({{"summary", {{"completed", true}}}});
  lines.push_back({{"end", true}, {"passes", 1}});
  std::string text;
  for (const json& line : lines) text += line.dump() + "\n";
  return text;
}

json judged(const std::string& text, int code) {
  const testing::TemporaryFolder folder;
  const testing::Outcome outcome = testing::run({"judge", folder.write("observed.jsonl", text), "--json"});
  EXPECT_EQ(outcome.code, code) << outcome.out << outcome.err;
  return outcome.code > 1 ? json(outcome.err) : testing::json_of(testing::lines_of(outcome.out).at(0));
}

double by_tokens(int rank, int micro_batch) {
  return std::vector<std::vector<double>>{{8, 4}, {12, 2}}[static_cast<std::size_t>(rank)][static_cast<std::size_t>(micro_batch)] / 13;
}

const json weights_by_tokens = json::parse(R"([["8/13", "4/13"], ["12/13", "2/13"]])");
const json weights_alike = json::parse(R"([["1/2", "1/2"], ["1/2", "1/2"]])");

TEST(one_pass_of_a_loop, that_weighs_by_tokens_as_it_means_is_clean) {
  EXPECT_EQ(judged(trace(scenario(weights_by_tokens, {{"divide_by", "tokens"}}), by_tokens), 0)["verdict"], "clean");
}

TEST(one_pass_of_a_loop, that_means_tokens_and_weighs_micro_batches_alike_has_a_wrong_scale) {
  const json report = judged(trace(scenario(weights_alike, {{"divide_by", "tokens"}}), [](int, int) { return 0.5; }), 1);
  ASSERT_FALSE(report["findings"].empty());
  EXPECT_EQ(report["findings"][0]["class"], "wrong-scale");
  EXPECT_EQ(report["findings"][0]["contributions"].size(), static_cast<std::size_t>(world * micro_batches));
}

TEST(one_pass_of_a_loop, that_loses_a_micro_batch_names_it_beside_a_contract) {
  const json report = judged(trace(scenario(weights_by_tokens, {{"divide_by", "tokens"}}), [](int r, int m) { return r == 1 && m == 0 ? 0 : by_tokens(r, m); }), 1);
  ASSERT_FALSE(report["findings"].empty());
  const json contributions = report["findings"][0]["contributions"];
  ASSERT_EQ(contributions.size(), 1u) << contributions;
  EXPECT_EQ(contributions[0]["rank"], 1);
  EXPECT_EQ(contributions[0]["micro_batch"], 0);
  EXPECT_EQ(contributions[0]["observed"], 0);
}

TEST(one_pass_of_data, that_the_oracle_would_draw_is_refused) {
  json drawn = scenario(weights_alike, {{"divide_by", 2}});
  drawn["gradients"] = {{"kind", "normal"}};
  EXPECT_NE(judged(trace(drawn, by_tokens), 2).get<std::string>().find("/scenario/gradients/kind: is of data that the oracle draws"), std::string::npos);
}

}  // namespace
}  // namespace gradledger::conform::observed_loop
