// A scenario: a value that says everything about a run. World, parameters, dtypes, engine configuration, script of events, the
// user's contract and the expected findings. docs/scenario-format.md explains each field to its users.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/numeric/dtype.h"
#include "sim/scenario/config.h"
#include "sim/scenario/history.h"
#include "sim/scenario/predicate.h"

namespace gradledger {

struct Parameter {
  std::string name;
  std::uint32_t numel = 0;
  std::optional<Predicate> used_by;  // which contributions use it; absent: all
  bool trainable = true;             // false: frozen, no gradient
  std::optional<std::uint32_t> tied_to;  // another use of that parameter, which has the storage and the gradient of both
  bool on_side_stream = false;       // autograd makes its gradient on a stream that is not the one that calls backward
  std::uint32_t hooked_outputs = 1;  // outputs of the module that its gradient passes on the way

  std::optional<std::uint32_t> expert;   // number of the expert that it belongs to
  std::uint32_t pipeline_stage = 0;

  bool has_gradient() const { return trainable && !tied_to; }
  bool operator==(const Parameter&) const = default;
};

enum class OptimizerType : std::uint8_t { sgd, adam, adamw };

struct OptimizerConfig {
  OptimizerType type = OptimizerType::sgd;
  double learning_rate = 1.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;  // no tolerance: the default of Adam
  double weight_decay = 0.0;
  bool torch_adam = false;  // PyTorch's class, not DeepSpeed's FusedAdam or CPU Adam

  bool fused() const { return type != OptimizerType::sgd && !torch_adam; }
  bool operator==(const OptimizerConfig&) const = default;
};

// Parameters that were given to the optimizer together, by index, in their order there.
struct OptimizerGroup {
  std::vector<std::uint32_t> parameters;
  std::optional<double> learning_rate, weight_decay;  // absent: the optimizer's

  bool operator==(const OptimizerGroup&) const = default;
};

// The release or change, or switches by name on top of one. Resolved by sim/engine/behaviour.h.
struct AsOf {
  std::string base = "head";
  std::map<std::string, std::string> switches;

  bool operator==(const AsOf&) const = default;
};

struct EngineConfig {
  std::string framework = "deepspeed";
  AsOf as_of;
  DeepSpeedConfig config;
  OptimizerConfig optimizer;
  std::vector<OptimizerGroup> param_groups;  // empty: one of all parameters
  std::uint32_t expert_parallel_size = 1;
  std::uint32_t sequence_parallel_size = 1;
  std::uint32_t pipeline_stages = 1;

  OptimizerConfig optimizer_of(const OptimizerGroup& group) const;
  OptimizerConfig optimizer_of(std::uint32_t parameter) const;
  bool operator==(const EngineConfig&) const = default;
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

enum class Window : std::uint8_t {
  since_last_step,  // a step closes the window where the documentation says that it updates: override, or micro-step counter
  every_step_call,  // every call of step() must update
};

// What the training loop does when the framework raises.
enum class AfterError : std::uint8_t { stop, go_on };

struct Contract {
  Window window = Window::since_last_step;
  bool average_over_world = true;               // "world"; false: "none", the ranks' gradients are summed
  std::optional<std::uint32_t> divide_by;       // absent: gradient_accumulation_steps
  bool zero_grad_discards = true;               // what zero_grad calls are meant to do to the open window

  bool operator==(const Contract&) const = default;
};

enum class ScriptKind : std::uint8_t {
  forward, backward, set_boundary, step, engine_zero_grad, optimizer_zero_grad, raise, no_sync, coalesce, repeat, overflow, set_gradient,
};

// What a user may multiply a gradient by: an odd number up to odd_factor_max times a power of two, so that probes stay exact in bf16.
inline constexpr double least_factor = 1.0 / 64, largest_factor = 16;
inline constexpr double odd_factor_max = 7;
double odd_part(double factor);
bool exact_factor(double factor);
std::string exact_factors();  // in words

// What an overflow plants in a gradient.
enum class PlantedValue : std::uint8_t { infinity, minus_infinity, not_a_number };

struct ScriptItem {
  ScriptKind kind = ScriptKind::step;
  std::vector<std::uint32_t> ranks;              // empty: all
  bool boundary = false;                         // set_boundary
  std::uint32_t micro_batches = 1;               // backward: this many, one after the other
  std::optional<std::uint32_t> of;               // backward of an explicit forward, counted since the last step
  std::optional<std::uint32_t> micro_batch;      // values: which of the given micro-batches; default: position in the window. overflow: the
                                                 // micro-batch of the window that it is planted in
  std::vector<std::string> uses;                 // parameters that get a gradient; empty: as the parameters say. overflow: at most one.
                                                 // set_gradient: the one
  double factor = 1.0;                           // set_gradient: what the gradient is multiplied by
  bool local = false;                            // set_gradient: through the API of a rank's own partition
  PlantedValue planted = PlantedValue::infinity;  // overflow
  bool scale_wrt_gas = true;                     // backward: false leaves out the division by gradient_accumulation_steps
  std::uint32_t phases = 1;                      // backward: autograd ends this many times in it, as with reentrant checkpointing
  bool direct = false;                           // backward: loss.backward() instead of engine.backward(loss)
  bool caught = false;                           // raise: the loop goes on after the blocks that it leaves
  std::map<std::uint32_t, std::vector<std::string>> order;  // backward, by rank: parameters whose gradients are ready first, in this order
  std::uint32_t times = 1;                       // repeat
  std::vector<ScriptItem> items;                 // no_sync, coalesce, repeat

  bool operator==(const ScriptItem&) const = default;
};

struct ExpectedFinding {
  std::string finding;                      // class name
  std::optional<Predicate> contributions;   // exactly these are miscounted
  std::optional<double> own;                // observed coefficient of the rank's own miscounted contributions
  std::optional<double> peer;               // and of the other ranks' ones
  std::optional<double> lost_weight;        // share of the window's weight that is missing

  bool operator==(const ExpectedFinding&) const = default;
};

struct ExpectedCollectives {
  std::optional<std::uint32_t> per_step{};
  std::optional<std::uint32_t> at_most_per_step{};
  std::optional<std::uint64_t> bytes_per_step{};
  std::optional<std::uint64_t> at_most_bytes_per_step{};

  bool operator==(const ExpectedCollectives&) const = default;
};

// What is held in every closed window; the words are those of sim/accounting.h.
struct ExpectedMemory {
  std::string of = "gradient memory";
  std::string space = "device";
  std::string phase;                   // empty: any
  std::optional<std::uint32_t> rank;   // absent: every rank
  std::optional<std::uint64_t> resident, at_most_resident, peak, at_most_peak;

  bool operator==(const ExpectedMemory&) const = default;
};

// Exact contents of a buffer after an event (numbered from 0 through the unrolled script).
struct ExpectedValues {
  std::uint32_t event = 0;
  std::uint32_t rank = 0;
  std::string buffer;
  std::vector<double> values;

  bool operator==(const ExpectedValues&) const = default;
};

// The applied gradients of two scenarios, step by step: within both bounds of each other, or apart by more.
struct ExpectedComparison {
  std::string with;  // a scenario file, relative to this one
  bool agree = true;

  bool operator==(const ExpectedComparison&) const = default;
};

struct Expect {
  std::vector<ExpectedFinding> findings;
  std::map<std::string, ExpectedCollectives> collectives;  // by purpose: "gradient", "norm", "overflow", "parameter", "user"
  bool accounting_only = false;                            // nothing is judged: a dry run, of any size
  std::vector<ExpectedMemory> memory;
  std::vector<std::string> not_allocated;                  // buffers, by name without index
  std::vector<ExpectedValues> values;
  std::optional<ExpectedComparison> comparison;

  bool operator==(const Expect&) const = default;
};

// When a dynamic loss scale moves, by release: what the framework's scaler of this configuration promises.
struct LossScalePolicy {
  std::uint32_t hysteresis = 1;   // overflows that it takes to halve
  std::uint32_t growth_lag = 0;   // steps by which doubling comes after the last of loss_scale_window steps without overflow
};

struct Scenario {
  std::string name;
  std::string note;
  std::vector<std::string> source;
  std::vector<std::string> covers;  // ids of entries of the catalogue
  std::string twin_of;  // the file, relative to this one, of the scenario that this one differs from in one thing
  std::uint32_t world_size = 1;
  std::vector<Parameter> parameters;
  Dtype model_dtype = Dtype::float32;
  EngineConfig engine;
  Gradients gradients;
  Contract contract;
  AfterError after_error = AfterError::stop;
  std::vector<ScriptItem> script;
  Expect expect;

  bool operator==(const Scenario&) const = default;

  std::uint64_t numel() const;             // of all parameters
  std::uint32_t divisor() const;           // the contract's
  double gradient_clipping() const;        // given, or the release's default
  LossScalePolicy loss_scale_policy() const;
  Dtype grad_accum_dtype() const;          // given, or the model dtype; fp32 for bf16 at stage 0 before #7515
  Dtype communication_dtype() const;       // given, or the 16-bit model dtype, or fp32
};

}  // namespace gradledger
