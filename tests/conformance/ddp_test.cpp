// Recorded runs of PyTorch's DistributedDataParallel, and that their comparison sees a change in any of its numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "sim/scenario/json_reader.h"
#include "conformance/files.h"
#include "conformance/torch/compare.h"

namespace gradledger::conform::torch {
namespace {

using nlohmann::json;
using DdpRun = Run;  // tests have a function of that name

std::vector<DdpRun> recorded() {
  const auto file = std::filesystem::path(GRADLEDGER_SOURCE_DIR) / "tests/conformance/torch_data/ddp.jsonl.gz";
  std::vector<DdpRun> out;
  const auto error = for_each_line(file.string(), [&](const std::string& line, const std::string& where) -> std::optional<InputError> {
    const auto document = read_json(line);
    if (!document || !is_ddp_run(*document)) return InputError{where, "is no run of DistributedDataParallel"};
    auto run = read_ddp_run(*document);
    if (!run) return InputError{where, run.error().text()};
    out.push_back(std::move(run).value());
    return std::nullopt;
  });
  EXPECT_FALSE(error) << error->text();
  return out;
}

TEST(recorded_ddp_runs, agree_with_their_replay_in_every_number) {
  std::uint64_t agree = 0, elements = 0, collectives = 0;
  for (const DdpRun& run : recorded()) {
    const auto comparison = judge(run);
    ASSERT_TRUE(comparison.ok()) << run.name << ": " << comparison.error().text();
    EXPECT_EQ(comparison->outcome, Outcome::agrees) << run.name << ": " << comparison->why;
    agree += comparison->outcome == Outcome::agrees;
    elements += comparison->elements;
    collectives += comparison->collectives;
  }
  EXPECT_EQ(agree, 181u);
  EXPECT_EQ(elements, 295458u);
  EXPECT_EQ(collectives, 1699u);
}

// Whether the comparison notices that one number of some moment is another; `change` says whether it found one to change.
template <class Change>
void expect_noticed(const std::vector<DdpRun>& runs, Change&& change) {
  std::uint64_t changed = 0;
  for (DdpRun run : runs) {
    bool done = false;
    for (std::vector<Moment>& moments : run.ranks)
      for (Moment& moment : moments)
        if (!done && (done = change(moment))) break;
    if (!done) continue;
    ++changed;
    EXPECT_EQ(judge(run)->outcome, Outcome::differs) << run.name;
  }
  EXPECT_GT(changed, 0u);
}

bool nudge(std::vector<double>& values) {
  if (values.empty() || !std::isfinite(values.back())) return false;
  values.back() = std::nextafter(values.back(), 1e300);
  return true;
}

TEST(recorded_ddp_runs, differ_where_one_number_is_another) {
  std::vector<DdpRun> runs = recorded();
  // Not those of which a part is not judged.
  std::erase_if(runs, [n = 0u](const DdpRun& run) mutable { return n++ % 6 != 0 || judge(run)->in_part(); });
  expect_noticed(runs, [](Moment& m) { return !m.buffers.empty() && nudge(m.buffers.rbegin()->second.values); });
  expect_noticed(runs, [](Moment& m) { return !m.weights.empty() && nudge(m.weights.back().values); });
  expect_noticed(runs, [](Moment& m) { return !m.applied.empty() && nudge(m.applied.back().values); });
  expect_noticed(runs, [](Moment& m) { return !m.transfers.empty() && m.error.empty() && nudge(m.transfers.rbegin()->second.in); });
  expect_noticed(runs, [](Moment& m) { return !m.transfers.empty() && m.error.empty() && nudge(m.transfers.rbegin()->second.out); });
  expect_noticed(runs, [](Moment& m) { return !m.collectives.empty() && ++m.collectives.back().numel > 0; });
  expect_noticed(runs, [](Moment& m) {
    if (m.collectives.empty()) return false;
    m.collectives.pop_back();
    return true;
  });
  expect_noticed(runs, [](Moment& m) {
    if (m.error.empty() || m.error.size() >= 600) return false;  // longer ones were cut
    m.error += "?";
    return true;
  });
}

TEST(recorded_ddp_runs, that_are_malformed_are_named_by_their_place) {
  const json line = json::parse(R"({"name": "a", "version": "2", "framework": "ddp", "spec": {"world": 1, "root": [2], "units": [], "sizes": [2], "n_mb": 1,
      "dtype": "float32", "config": {}, "ops": [["fb", 0]]}, "grads": {"rank0": {"mb0": [[1, 2]]}}, "ranks": [{"trace": []}]})");
  EXPECT_TRUE(read_ddp_run(line).ok());
  const auto place = [&](const char* pointer, const json& value) {
    json changed = line;
    changed[json::json_pointer(pointer)] = value;
    const auto run = read_ddp_run(changed);
    return run ? std::string("nothing") : run.error().where;
  };
  EXPECT_EQ(place("/spec/world", 0), "/spec/world");
  EXPECT_EQ(place("/spec/units", json::parse("[[3]]")), "/spec/units");
  EXPECT_EQ(place("/grads/rank0/mb0", json::parse("[[1]]")), "/grads/rank0/mb0/0");
  EXPECT_EQ(place("/grads/rank0/mb0", json::parse("[5]")), "/grads/rank0/mb0/0");
  EXPECT_EQ(place("/ranks/0/trace", json::parse(R"([{"op": ["step"]}])")), "/ranks/0/trace/0/op");
}

}  // namespace
}  // namespace gradledger::conform::torch
