// What one recorded run of a real framework says, before anything is made of it. Both file formats are read into this.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/limits.h"
#include "sim/base/result.h"
#include "sim/scenario/scenario.h"

namespace gradledger::conform {

struct RecordedBuffer {
  std::string dtype;  // "bfloat16"; of a list of tensors, the first one's
  std::vector<double> values;

  bool operator==(const RecordedBuffer& other) const;
};

struct RecordedCollective {
  std::string kind;         // the framework's call: "reduce_scatter_tensor"
  std::uint64_t numel = 0;  // of the input
  std::string dtype;
  // What recorders may leave out.
  std::string operation = {};                            // "sum", of a reduction
  std::optional<std::vector<std::uint32_t>> group = {};  // its members, ranks of the world
  std::optional<std::uint32_t> root = {};                // of the world

  bool operator==(const RecordedCollective&) const = default;
};

// What one rank held, issued and reported after one operation. Equality is of bits: -0 is not 0, NaN is NaN.
struct RecordedMoment {
  std::string operation;                                       // "fb 2", "step"
  std::map<std::string, RecordedBuffer> buffers;               // by the framework's name
  std::vector<std::vector<double>> parameters;                 // after a step
  std::optional<double> norm;                                  // reported by a step
  std::optional<double> loss_scale;                            // in force after a step
  std::optional<bool> overflow;                                // reported by a step
  std::optional<std::vector<RecordedCollective>> collectives;  // absent: not recorded
  std::string error;                                           // "TypeError: ..." where the operation raised

  bool operator==(const RecordedMoment& other) const;
};

struct RecordedRun {
  std::string name;
  std::string version;  // label of the code's state: "head", "pre7981", "post7981"
  std::uint32_t world = 1;
  std::vector<std::uint32_t> sizes;  // elements of each parameter
  nlohmann::json config;             // the framework's configuration, as it was given
  nlohmann::json optimizer;          // {"type": "Adam", "lr": 0.5}, as scenarios write it; null: SGD with learning rate 1
  nlohmann::json operations;         // [["fb", 0], ["boundary", true], ["step"]]
  GivenValues gradients;             // [micro_batch][rank], parameters concatenated
  std::string patch;                 // what of the environment was mended for the recording, in words or as the code that did it
  bool goes_on_after_errors = false;
  std::string unfinished;                          // why the recorder ended it; there are no ranks then
  std::string refusal;                             // the framework refused the configuration; there are no ranks then
  std::vector<std::vector<RecordedMoment>> ranks;  // [rank][operation], up to an error that ended the rank

  bool operator==(const RecordedRun& other) const;
};

// Numbers that one recording may hold, over all ranks and operations: an exact fp32 value is written with up to 16 characters, so this is
// what the longest line can spell out. Formats that spell less are held to it too.
inline constexpr std::uint64_t numbers_max = limits::file_bytes_max / 16;

// One line in either format. Errors: a JSON pointer, and what would be right there.
Result<RecordedRun> read_run(const nlohmann::json& line);

}  // namespace gradledger::conform
