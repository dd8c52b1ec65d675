// Runs of PyTorch's sharding wrappers on three parameters and two ranks, and what rank 0 sent in them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ref/probes.h"
#include "sim/execution/happens_before.h"
#include "sim/execution/host_executor.h"

namespace gradledger::testing {

// Of rank 0: its collectives by event, as its host enqueued them, and its errors; races of any rank.
struct ShardedRun {
  std::map<std::uint32_t, std::string> calls, errors;
  std::size_t races = 0;
};

struct ShardedSink final : TraceSink {
  void engine_error(const EngineErrorRecord& e) override { errors[e.event] = e.type + ": " + e.message; }
  void unwritten(const UnwrittenRecord& u) override { ADD_FAILURE() << u.buffer << " is read and nobody wrote it"; }
  std::map<std::uint32_t, std::string> errors;
};

// The first parameter is the root's where units say so.
inline Scenario sharded_scenario(std::vector<ScriptItem> script) {
  Scenario s;
  s.world_size = 2;
  s.parameters = {{"w0", 4, std::nullopt}, {"w1", 5, std::nullopt}, {"w2", 6, std::nullopt}};
  s.after_error = AfterError::go_on;
  s.gradients.kind = GradientKind::normal;
  s.script = std::move(script);
  return s;
}

// reduction: what a call that is no gather is written as.
template <class Text>
ShardedRun sharded_run(const Scenario& s, const Contract& contract, const EngineFactory& engines, Text&& reduction) {
  const auto timeline = unroll(s, s.script, contract);
  EXPECT_TRUE(timeline.ok());
  const auto source = ref::value_source(s, *timeline, s.gradients.kind, 1);
  ShardedSink sink;
  HostExecutor executor(s, *timeline, CollectiveArithmetic::nccl_ring, engines);
  executor.run(*source, {}, sink);
  ShardedRun out{{}, sink.errors, 0};
  const Program& program = executor.ranks()[0].program;
  for (const Op& op : program.ops) {
    if (op.kind != OpKind::collective) continue;
    const CollectiveCall& c = program.collectives[op.index];
    std::string& calls = out.calls[op.event];
    calls += std::string(calls.empty() ? "" : ", ") + (c.kind == CollectiveKind::all_gather ? "gather" : std::string(reduction(c))) + " " + std::to_string(c.input.numel);
  }
  for (std::uint32_t r = 0; r < s.world_size; ++r) out.races += stream_races(executor.ranks()[r].program, r).size();
  return out;
}

}  // namespace gradledger::testing
