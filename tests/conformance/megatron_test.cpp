// Recorded runs of Megatron-Core, and that their comparison sees a change in any of its numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "sim/scenario/json_reader.h"
#include "conformance/files.h"
#include "conformance/megatron/compare.h"

namespace gradledger::conform::megatron {
namespace {

using nlohmann::json;
using MegatronRun = Run;  // tests have a function of that name

std::vector<MegatronRun> recorded() {
  const auto file = std::filesystem::path(GRADLEDGER_SOURCE_DIR) / "tests/conformance/megatron_data/megatron.jsonl.gz";
  std::vector<MegatronRun> out;
  const auto error = for_each_line(file.string(), [&](const std::string& line, const std::string& where) -> std::optional<InputError> {
    const auto document = read_json(line);
    if (!document || !is_megatron_run(*document)) return InputError{where, "is no run of Megatron-Core"};
    auto run = read_megatron_run(*document);
    if (!run) return InputError{where, run.error().text()};
    out.push_back(std::move(run).value());
    return std::nullopt;
  });
  EXPECT_FALSE(error) << error->text();
  return out;
}

TEST(recorded_megatron_runs, agree_with_their_replay_in_every_number) {
  std::uint64_t agree = 0, elements = 0, collectives = 0;
  std::map<std::string, std::uint32_t> versions;
  for (const MegatronRun& run : recorded()) {
    const auto comparison = judge(run);
    ASSERT_TRUE(comparison.ok()) << run.name << ": " << comparison.error().text();
    EXPECT_EQ(comparison->outcome, Outcome::agrees) << run.name << " at " << run.version << ": " << comparison->why;
    agree += comparison->outcome == Outcome::agrees;
    elements += comparison->elements;
    collectives += comparison->collectives;
    ++versions[run.version];
  }
  EXPECT_EQ(agree, 645u);
  EXPECT_EQ(elements, 1173125u);
  EXPECT_EQ(collectives, 6944u);
  EXPECT_EQ(versions.size(), 7u);
}

// Whether the comparison notices that one number of some moment is another; `change` says whether it found one to change.
template <class Change>
void expect_noticed(const std::vector<MegatronRun>& runs, Change&& change) {
  std::uint64_t changed = 0;
  for (MegatronRun run : runs) {
    bool done = false;
    for (RankRun& rank : run.ranks)
      for (Moment& moment : rank.moments)
        if (!done && (done = change(moment))) break;
    if (!done) continue;
    ++changed;
    EXPECT_EQ(judge(run)->outcome, Outcome::differs) << run.name;
  }
  EXPECT_GT(changed, 0u);
}

bool nudge(double& value) {
  if (!std::isfinite(value)) return false;
  value = std::nextafter(value, 1e300);
  return true;
}

TEST(recorded_megatron_runs, differ_where_one_number_is_another) {
  std::vector<MegatronRun> runs = recorded();
  std::erase_if(runs, [n = 0u](const MegatronRun&) mutable { return n++ % 16 != 0; });
  expect_noticed(runs, [](Moment& m) { return !m.buffers.empty() && nudge(m.buffers.rbegin()->second.values.back()); });
  expect_noticed(runs, [](Moment& m) { return !m.weights.empty() && nudge(m.weights.back().back()); });
  expect_noticed(runs, [](Moment& m) { return m.norm && nudge(*m.norm); });
  expect_noticed(runs, [](Moment& m) { return m.zeros && nudge(*m.zeros); });
  expect_noticed(runs, [](Moment& m) { return m.loss_scale && nudge(*m.loss_scale); });
  expect_noticed(runs, [](Moment& m) { return !m.padding_nonzero.empty() && ++m.padding_nonzero.begin()->second > 0; });
  expect_noticed(runs, [](Moment& m) { return !m.collectives.empty() && ++m.collectives.back().numel > 0; });
  expect_noticed(runs, [](Moment& m) {
    if (m.collectives.empty()) return false;
    m.collectives.pop_back();
    return true;
  });
  expect_noticed(runs, [](Moment& m) {
    if (m.groups.empty()) return false;
    ++m.groups.begin()->second.ready["a"];
    return true;
  });
  expect_noticed(runs, [](Moment& m) {
    if (m.groups.empty() || !m.groups.begin()->second.grad_reduce_handle) return false;
    m.groups.begin()->second.grad_reduce_handle = !*m.groups.begin()->second.grad_reduce_handle;
    return true;
  });
  expect_noticed(runs, [](Moment& m) {
    if (!m.updated) return false;
    m.updated = !*m.updated;
    return true;
  });
  expect_noticed(runs, [](Moment& m) {
    m.error += "?";
    return true;
  });
}

TEST(recorded_megatron_runs, differ_where_a_buffer_is_laid_out_otherwise) {
  MegatronRun run = recorded().front();
  ++run.ranks[0].layout[0].places.begin()->second[0];
  EXPECT_EQ(judge(run)->outcome, Outcome::differs);
}

TEST(recorded_megatron_runs, that_are_malformed_are_named_by_their_place) {
  const json line = json::parse(R"({"name": "a", "version": "core_v0.16.1", "framework": "megatron-core", "spec": {"world": 1, "n_mb": 1, "dtype": "fp32",
      "params": [{"name": "a", "numel": 2}], "config": {"ddp": {}, "optimizer": {}, "model": {}}, "ops": [["fb", 0]]},
      "grads": {"rank0": {"mb0": [[1, 2]]}}, "ranks": [{"trace": []}]})");
  EXPECT_TRUE(read_megatron_run(line).ok());
  const auto place = [&](const char* pointer, const json& value) {
    json changed = line;
    changed[json::json_pointer(pointer)] = value;
    const auto run = read_megatron_run(changed);
    return run ? std::string("nothing") : run.error().where;
  };
  EXPECT_EQ(place("/spec/world", 0), "/spec/world");
  EXPECT_EQ(place("/spec/params", json::array()), "/spec/params");
  EXPECT_EQ(place("/spec/params/0/numel", "x"), "/spec/params/0/numel");
  EXPECT_EQ(place("/grads/rank0/mb0", json::parse("[[1]]")), "/grads/rank0/mb0/0");
  EXPECT_EQ(place("/ranks/0/trace", json::parse(R"([{"op": ["step"]}])")), "/ranks/0/trace/0/op");
}

}  // namespace
}  // namespace gradledger::conform::megatron
