// The parameters of a user's model, or of one that stands for it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"

namespace gradledger::audit {

struct ModelShapes {
  nlohmann::json parameters;                     // of a scenario
  nlohmann::json listed;                         // likewise, each by its name and numel
  bool stand_in = false;                         // for any
  std::uint64_t shrink = 1;                      // sizes of the model over those of the parameters
  std::string says;                              // for the report
  std::optional<std::uint64_t> hidden_size;      // of a published model
  std::vector<std::vector<std::string>> layers;  // by the names of their parameters, of a model at its true size
  std::map<std::string, std::uint64_t> rows;     // likewise: the first dimension of those that have several
};

// A published model by its name, or a file of shapes (sim/scenario/model_shapes): the model at its true size.
// "embed=32000x4096,head=4096x32000", or a JSON file of {"name": [sizes]} or {"name": number}: models with more than elements_max elements are made
// smaller, with all of their parameters. Empty: a model that stands for any.
Result<ModelShapes> model_of(const std::string& text);

inline constexpr std::uint64_t elements_max = 4096;

}  // namespace gradledger::audit
