// What the ranks of a run compute: parameters, their data and their dtype, whoever runs it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/numeric/dtype.h"
#include "sim/scenario/predicate.h"
#include "sim/scenario/rank_layout.h"

namespace gradledger {

// One of the parts into which ranks cut a parameter. Parts follow each other in the list of parameters, by number, and all have the name of the whole.
struct ParameterPart {
  std::string over;  // a group: the part lives on the ranks with its number there
  std::uint32_t number = 0, count = 1;

  bool operator==(const ParameterPart&) const = default;
};

struct Parameter {
  std::string name;
  std::uint64_t numel = 0;
  std::optional<Predicate> used_by;      // which contributions use it; absent: all
  bool trainable = true;                 // false: frozen, no gradient
  std::optional<Dtype> dtype;            // absent: the model's
  std::optional<std::uint32_t> tied_to;  // another use of that parameter, which has the storage and the gradient of both
  bool on_side_stream = false;           // autograd makes its gradient on a stream that is not the one that calls backward
  std::uint32_t hooked_outputs = 1;      // outputs of the module that its gradient passes on the way

  std::optional<std::uint32_t> expert;  // number of the expert that it belongs to
  std::uint32_t pipeline_stage = 0;
  std::optional<ParameterPart> part;  // absent: it is whole
  // A group whose ranks all have it, and each a part of its gradient, of which the sum is due; or a gradient of their own, of which the mean is.
  // Neither: those of the tensor-parallel ranks are the same.
  std::string summed_over, averaged_over;

  bool has_gradient() const { return trainable && !tied_to; }
  bool operator==(const Parameter&) const = default;
};

enum class GradientKind : std::uint8_t { probe, normal, adversarial, values, mlp };

// gelu: x times the normal distribution function of x, by erf; not the form with tanh.
enum class Activation : std::uint8_t { none, relu, gelu };

// y = W x + b. The weight is `out` rows of `in` elements.
struct LinearLayer {
  std::uint32_t weight = 0;  // parameters, by index
  std::optional<std::uint32_t> bias;
  std::uint32_t in = 0, out = 0;

  bool operator==(const LinearLayer&) const = default;
};

// Linear layers with an activation between them; the loss is the mean squared error against a target.
struct Mlp {
  Activation activation = Activation::none;
  std::vector<LinearLayer> layers;  // of all parameters, each used once

  bool operator==(const Mlp&) const = default;
};

// Gradients given by the user: values[micro_batch][rank] holds every parameter's elements, parameters concatenated in order.
// Micro-batches are repeated in every window.
using GivenValues = std::vector<std::vector<std::vector<double>>>;

struct Gradients {
  GradientKind kind = GradientKind::probe;
  std::uint64_t seed = 0;
  // All but values: a micro-batch's gradient is the mean of this many samples, numbered through the window, so that windows with
  // equal global batch see equal samples.
  std::uint32_t samples_per_micro_batch = 1;
  std::string file;  // values: where they were read from, relative to the scenario; empty when inline
  std::shared_ptr<const GivenValues> values;
  std::optional<Mlp> mlp;  // mlp: the network that producer and oracle each run; samples_per_micro_batch is its batch

  bool operator==(const Gradients& other) const;
};

// Tokens that the loss of a micro-batch is taken over, by window, rank and micro-batch.
struct Tokens {
  std::optional<std::uint32_t> constant;                       // the same for all
  std::vector<std::vector<std::vector<std::uint32_t>>> table;  // one window: every window's
  std::string file;                                            // that the table was read from, relative to the scenario

  bool stated() const { return constant || !table.empty(); }
  // None where the table does not go that far.
  std::optional<std::uint32_t> of(std::uint32_t window, std::uint32_t rank, std::uint32_t micro_batch) const;
  bool operator==(const Tokens&) const = default;
};

struct Workload {
  std::uint32_t world_size = 1;
  std::vector<Parameter> parameters;
  Dtype model_dtype = Dtype::float32;
  Gradients gradients;
  Tokens tokens;
  std::map<std::string, std::vector<std::vector<std::uint32_t>>> groups;  // by name: process groups that the loop uses
  std::optional<RankLayout> layout;                                       // that further groups follow from

  bool operator==(const Workload&) const = default;

  std::uint64_t numel() const;  // of all parameters
  Dtype dtype_of(std::uint32_t parameter) const { return parameters[parameter].dtype.value_or(model_dtype); }
};

}  // namespace gradledger
