// The recordings of tests/conformance/data, and a run spelled in the recorder's own format.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "conformance/recording.h"

namespace gradledger::conform {

inline std::filesystem::path data_folder() { return std::filesystem::path(GRADLEDGER_SOURCE_DIR) / "tests/conformance/data"; }
inline std::string data_file(const std::string& name) { return (data_folder() / (name + ".jsonl.gz")).string(); }

inline std::vector<RecordedRun> runs_of(const std::string& name) {
  std::vector<RecordedRun> out;
  const auto error = for_each_run(data_file(name), [&](RecordedRun run, const std::string&) -> std::optional<InputError> {
    out.push_back(std::move(run));
    return std::nullopt;
  });
  EXPECT_FALSE(error) << error->text();
  return out;
}

inline RecordedRun run_named(const std::string& file, const std::string& name, const std::string& version) {
  for (RecordedRun& run : runs_of(file))
    if (run.name == name && run.version == version) return std::move(run);
  throw std::runtime_error(file + " has no run " + name + " at " + version);
}

inline nlohmann::json spelled(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return x;
}

inline nlohmann::json spelled(const std::vector<double>& values) {
  nlohmann::json out = nlohmann::json::array();
  for (double x : values) out.push_back(spelled(x));
  return out;
}

inline nlohmann::json recorder_call(const RecordedCollective& call) {
  nlohmann::json out{call.kind, call.numel, call.dtype}, details = nlohmann::json::object();
  if (!call.operation.empty()) details["operator"] = call.operation;
  if (call.group) details["group"] = *call.group;
  if (call.root) details["root"] = *call.root;
  if (!details.empty()) out.push_back(std::move(details));
  return out;
}

inline nlohmann::json recorder_entry(const RecordedMoment& moment, const nlohmann::json& operation) {
  nlohmann::json out{{"op", operation}};
  if (!moment.error.empty()) out["error"] = moment.error;
  out["snap"] = {{"micro_steps", 1}};  // counters stand beside buffers
  for (const auto& [name, buffer] : moment.buffers) out["snap"][name] = {{"dtype", "torch." + buffer.dtype}, {"raw", spelled(buffer.values)}};
  for (const std::vector<double>& parameter : moment.parameters) out["params"].push_back(spelled(parameter));
  if (moment.norm) out["global_grad_norm"] = spelled(*moment.norm);
  if (moment.loss_scale) out["loss_scale"] = spelled(*moment.loss_scale);
  if (moment.overflow) out["overflow"] = *moment.overflow;
  if (moment.collectives) {
    out["calls"] = nlohmann::json::array();
    for (const RecordedCollective& call : *moment.collectives) out["calls"].push_back(recorder_call(call));
  }
  return out;
}

// What the recorder would have written.
inline nlohmann::json to_recorder_format(const RecordedRun& run) {
  nlohmann::json out{{"name", run.name}, {"version", run.version}};
  out["spec"] = {{"world", run.world}, {"sizes", run.sizes}, {"n_mb", run.gradients.size()}, {"config", run.config}, {"ops", run.operations}};
  if (!run.patch.empty()) out["spec"]["patch"] = run.patch;
  if (run.goes_on_after_errors) out["spec"]["continue_on_error"] = true;
  for (std::size_t m = 0; m < run.gradients.size(); ++m)
    for (std::size_t r = 0; r < run.world; ++r) {
      nlohmann::json& parameters = out["grads"]["rank" + std::to_string(r)]["mb" + std::to_string(m)] = nlohmann::json::array();
      auto next = run.gradients[m][r].begin();
      for (std::uint32_t size : run.sizes) {
        parameters.push_back(spelled(std::vector<double>(next, next + size)));
        next += size;
      }
    }
  if (!run.optimizer.is_null()) out["spec"]["optimizer"] = run.optimizer;
  if (!run.unfinished.empty()) out["unfinished"] = run.unfinished;
  out["ranks"] = nlohmann::json::array();
  if (!run.unfinished.empty()) return out;
  for (std::size_t r = 0; r < run.world; ++r) {
    if (!run.refusal.empty()) {
      out["ranks"].push_back({{"rank", r}, {"init_error", run.refusal}});
      continue;
    }
    nlohmann::json trace = nlohmann::json::array();
    for (std::size_t i = 0; i < run.ranks[r].size(); ++i) trace.push_back(recorder_entry(run.ranks[r][i], run.operations[i]));
    out["ranks"].push_back({{"rank", r}, {"trace", std::move(trace)}});
  }
  return out;
}

// Lines of `count` recorded runs under a configuration that no scenario has.
inline std::string lines_that_cannot_be_expressed(std::size_t count) {
  std::string out;
  for (RecordedRun& run : runs_of("rounding")) {
    if (count-- == 0) break;
    run.config["zero_optimization"]["zenflow"] = {{"topk_ratio", 1}};
    out += to_recorder_format(run).dump() + "\n";
  }
  return out;
}

}  // namespace gradledger::conform
