#include "sim/scenario/mlp_json.h"

#include <optional>
#include <string>
#include <utility>

#include "sim/scenario/spelling.h"

namespace gradledger {
namespace {

using nlohmann::json;

constexpr const char* activation_names[] = {"none", "relu", "gelu"};

class LayerReader {
 public:
  explicit LayerReader(const Scenario& scenario) : parameters_(scenario.parameters), used_in_(parameters_.size()) {}

  Result<std::vector<LinearLayer>> read(const json& layers) {
    std::vector<LinearLayer> out;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const std::string where = "/gradients/layers/" + std::to_string(i);
      LinearLayer layer;
      layer.in = layers[i]["in"];
      layer.out = layers[i]["out"];
      if (i > 0 && layer.in != out.back().out)
        return InputError{where + "/in", "is " + std::to_string(layer.in) + ", but the layer before has " + std::to_string(out.back().out) + " outputs; expected the same"};
      const auto weight = read_parameter(layers[i]["weight"], std::uint64_t{layer.out} * layer.in, "out x in", where + "/weight");
      if (!weight) return weight.error();
      layer.weight = *weight;
      if (layers[i].contains("bias")) {
        const auto bias = read_parameter(layers[i]["bias"], layer.out, "out", where + "/bias");
        if (!bias) return bias.error();
        layer.bias = *bias;
      }
      out.push_back(layer);
    }
    for (std::size_t p = 0; p < parameters_.size(); ++p)
      if (used_in_[p].empty()) return InputError{"/gradients/layers", "leave out parameter " + json(parameters_[p].name).dump() + "; expected each one in one layer"};
    return out;
  }

 private:
  Result<std::uint32_t> read_parameter(const std::string& name, std::uint64_t elements, const char* product, const std::string& where) {
    std::vector<std::string> names;
    for (std::uint32_t p = 0; p < parameters_.size(); ++p) {
      names.push_back(parameters_[p].name);
      if (parameters_[p].name != name) continue;
      if (!used_in_[p].empty()) return InputError{where, "names " + json(name).dump() + ", as " + used_in_[p] + " does; expected each parameter in one place"};
      if (parameters_[p].numel != elements)
        return InputError{
            where, "names " + json(name).dump() + ", which has " + std::to_string(parameters_[p].numel) + " elements; expected " + product + ", " + std::to_string(elements)};
      if (parameters_[p].tied_to || parameters_[p].expert || parameters_[p].pipeline_stage != 0)
        return InputError{where, "names " + json(name).dump() + ", which is tied, an expert's or a later stage's; expected a parameter of its own on every rank"};
      used_in_[p] = where;
      return p;
    }
    return InputError{where, "names no parameter: " + json(name).dump() + "; expected the name of a parameter of the scenario" + suggestion(name, names)};
  }

  const std::vector<Parameter>& parameters_;
  std::vector<std::string> used_in_;  // where each parameter is named; empty: nowhere yet
};

}  // namespace

Result<Mlp> mlp_from_json(const json& gradients, const Scenario& scenario) {
  if (!gradients.contains("layers")) return InputError{"/gradients", "of kind \"mlp\" need the network's \"layers\""};
  Mlp out;
  const std::string activation = gradients.value("activation", "none");
  out.activation = activation == "gelu" ? Activation::gelu : activation == "relu" ? Activation::relu : Activation::none;
  auto layers = LayerReader(scenario).read(gradients["layers"]);
  if (!layers) return layers.error();
  out.layers = std::move(layers).value();
  return out;
}

void mlp_to_json(const Mlp& mlp, const std::vector<Parameter>& parameters, nlohmann::ordered_json& gradients) {
  gradients["activation"] = activation_names[static_cast<std::size_t>(mlp.activation)];
  for (const LinearLayer& layer : mlp.layers) {
    nlohmann::ordered_json entry{{"weight", parameters[layer.weight].name}};
    if (layer.bias) entry["bias"] = parameters[*layer.bias].name;
    entry["in"] = layer.in;
    entry["out"] = layer.out;
    gradients["layers"].push_back(std::move(entry));
  }
}

}  // namespace gradledger
