#include "sim/frameworks/deepspeed/user_autotp.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace gradledger::deepspeed {
namespace {

using nlohmann::json;

constexpr const char* where = "/tensor_parallel/autotp_size";

// Weights that its presets and the plans of Hugging Face cut: module_inject/autotp_config.py, AutoTPPresets, at 0.19.8.
constexpr std::array<std::string_view, 14> cut_layers{"q_proj",       "k_proj",   "v_proj",          "o_proj",        "gate_proj",     "up_proj", "down_proj",
                                                      "gate_up_proj", "qkv_proj", "query_key_value", "dense_h_to_4h", "dense_4h_to_h", "fc1",     "fc2"};

bool is_cut(const std::string& name, bool stand_in) {
  constexpr std::string_view end = ".weight";
  if (!name.ends_with(end)) return false;
  const std::string_view layer = std::string_view(name).substr(0, name.size() - end.size());
  if (stand_in) return layer.starts_with("layer");
  return std::any_of(cut_layers.begin(), cut_layers.end(),
                     [&](std::string_view known) { return layer.ends_with(known) && (layer.size() == known.size() || layer[layer.size() - known.size() - 1] == '.'); });
}

// A part is as large as the others: the model of an audit is smaller than the user's, so that a size may have to be rounded up.
json with_parts(const UserConfigHints& hints, std::uint64_t ranks, bool& any) {
  json out = json::array();
  for (json parameter : hints.parameters) {
    if (is_cut(parameter["name"], hints.stand_in)) {
      any = true;
      const std::uint64_t numel = parameter["numel"];
      parameter["numel"] = (numel + ranks - 1) / ranks * ranks;
      parameter["sharded_over"] = "tp";
    }
    out.push_back(std::move(parameter));
  }
  return out;
}

}  // namespace

void cut_by_autotp(json& given, const UserConfigHints& hints, UserConfig& out) {
  if (!given.contains("tensor_parallel") || !given["tensor_parallel"].is_object()) return;
  const json asked = given["tensor_parallel"].value("autotp_size", json(0));
  if (!asked.is_number_unsigned() || asked <= 1) return;
  const std::uint64_t ranks = asked;
  if (ranks > hints.ranks || hints.ranks % ranks != 0) {
    out.errors.push_back({where, "is " + std::to_string(ranks) + ", which does not divide the " + std::to_string(hints.ranks) + " ranks; expected a divisor"});
  } else if (hints.ranks == ranks) {
    out.not_modelled.push_back(std::string(where) + ": " + std::to_string(ranks) + " of " + std::to_string(ranks) +
                               " ranks, so that none has the data of another and nothing is averaged");
  } else {
    out.layout = {{"tp", ranks}};
    if (hints.parameters.is_null()) return;
    bool any = false;
    out.parameters = with_parts(hints, ranks, any);
    out.not_judged.push_back(any ? "what AutoTP cuts of this model: weights of attention and of the MLP are taken to be, by their names; partition_config is not read"
                                 : "what AutoTP cuts of this model: none of its names is known, so all of it is taken to be whole on every tensor-parallel rank");
    return;
  }
  given.erase("tensor_parallel");
}

}  // namespace gradledger::deepspeed
