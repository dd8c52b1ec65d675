// One recorded run of a training loop: what each sample weighed in each update, as its file says it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"

namespace gradledger::conform::loop_runs {

// One micro-batch of one rank.
struct MicroBatch {
  bool syncs = false;  // sync_gradients: the loop steps behind it
  std::uint32_t sample = 0;
  std::optional<double> items;                  // num_items_in_batch that the loop hands over
  std::optional<std::vector<double>> gradient;  // the parameter's, behind the backward
};

struct RankRun {
  std::string error;
  std::vector<std::vector<double>> steps;      // what each update took off the weights
  std::vector<std::vector<double>> per_token;  // of each sample, divided by its tokens, to six decimals
  std::vector<MicroBatch> micro_batches;
  std::vector<std::uint32_t> samples;  // of each micro-batch, where nothing else is told of it
  bool tells_left = false;
  std::optional<std::vector<double>> left;  // in the gradient at the end; absent: there is none
};

struct Run {
  std::string name, loop;
  std::string version;  // of the package whose loop it is: "transformers 4.51.3"
  std::uint32_t world = 1, accumulation = 1, epochs = 1;
  std::vector<std::uint32_t> tokens;  // by sample
  std::optional<std::uint32_t> stop_after;
  bool accepts = false, loss_function = false, sums = false, manual = false, divides = false;
  nlohmann::json arguments = nlohmann::json::object(), plugin = nlohmann::json::object();
  nlohmann::json engine = {{"framework", "ddp"}};  // of the scenario, without its optimizer
  std::map<std::string, std::string> versions;
  std::vector<RankRun> ranks;
};

// Whether a line of a file is such a run.
bool is_loop_run(const nlohmann::json& line);
// Errors: a JSON pointer, and what would be right there.
Result<Run> read_loop_run(const nlohmann::json& line);

}  // namespace gradledger::conform::loop_runs
