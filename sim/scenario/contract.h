// What is right, as a value: what each contribution must weigh, which steps must update, the formats on the way and the decisions of a
// step. Resolved once from framework, configuration, release and what the user states; all that the timeline and the oracle see of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/rational.h"
#include "sim/numeric/dtype.h"
#include "sim/scenario/groups.h"

namespace gradledger {

enum class Window : std::uint8_t {
  since_last_step,  // a step closes the window where the documentation says that it updates: override, or micro-step counter
  every_step_call,  // every call of step() must update
  marked,           // the calls of step() that the script marks, and no others
};

// What a window's contributions are divided by.
enum class Normaliser : std::uint8_t {
  framework,  // what the framework divides by
  number,
  window,          // the micro-batches that the window has, of all ranks
  tokens,          // the tokens of the window, of all ranks: each contribution counts with its own
  tokens_of_rank,  // the tokens that each rank has in the window; then the mean over ranks
};

// Of the loop's own clipping.
struct StatedClip {
  std::string norm_over = "world";  // a group: the norm is meant to be that of what its ranks hold

  bool operator==(const StatedClip&) const = default;
};

// What the scenario states.
struct StatedContract {
  Window window = Window::since_last_step;
  Normaliser normaliser = Normaliser::framework;
  Rational divide_by{1};               // Normaliser::number
  std::string average_over = "world";  // "none": the sum over ranks; or a group by name
  bool zero_grad_discards = true;      // what zero_grad calls are meant to do to the open window
  bool reports_surplus = false;        // more than one reduction of a window's gradients is a finding
  std::optional<StatedClip> clip;      // of the loop; absent: the framework's

  void divide(const Rational& number) {
    normaliser = Normaliser::number;
    divide_by = number;
  }
  bool operator==(const StatedContract&) const = default;
};

enum class OptimizerType : std::uint8_t { sgd, adam, adamw, muon };

struct OptimizerConfig {
  OptimizerType type = OptimizerType::sgd;
  double learning_rate = 1.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;  // no tolerance: the default of Adam
  double weight_decay = 0.0;
  bool torch_adam = false;  // PyTorch's class, not DeepSpeed's FusedAdam or CPU Adam
  double momentum = 0.95;   // Muon: the share that its momentum keeps; 1 - momentum is the share that it takes in

  bool adam() const { return type == OptimizerType::adam || type == OptimizerType::adamw; }
  bool fused() const { return adam() && !torch_adam; }
  bool operator==(const OptimizerConfig&) const = default;
};

// The loss scale, step by step. A static one stays.
struct LossScalePolicy {
  double initial = 1;
  bool dynamic = false;
  std::uint32_t window = 1;      // good steps in a row, a multiple of which lets it grow
  std::uint32_t growth_lag = 0;  // steps by which it grows behind the last of them
  std::uint32_t hysteresis = 1;  // overflows that it takes to shrink
  bool consecutive_hysteresis = false;
  double minimum = 1;

  bool operator==(const LossScalePolicy&) const = default;
};

// The applied gradient is the averaged one times min(1, max_norm / (norm + guard)), by the norm of all of it.
struct ClipPolicy {
  double max_norm = 0;  // 0: not clipped
  double guard = 0;
  bool norm_in_parts = false;  // the norms of groups or stages are rounded, averaged over their ranks and combined

  bool operator==(const ClipPolicy&) const = default;
};

// When a step() updates, by the documentation: every n-th call, unless a call on the engine said otherwise.
struct BoundaryRule {
  std::uint32_t calls = 1;                                      // 0: the steps that the scenario marks, and nothing is counted
  bool counted = true;                                          // false: every call updates, and no backward is at a boundary
  bool of_backwards = false;                                    // true: what is counted is backwards since the last update
  std::string_view counted_by = "gradient_accumulation_steps";  // what the framework calls n
  bool inside_backwards = false;                                // no step() is called: the optimizer runs inside each backward that is reduced

  bool operator==(const BoundaryRule&) const = default;
};

// Averages that the documentation calls approximations. By parameter: of `weights` nobody says how much a contribution weighs, only that it takes part;
// of `values` no bound on rounding is known.
struct Approximation {
  std::vector<bool> weights, values;
  std::uint32_t exact_reductions = 0;  // of the run, before the first one that approximates

  bool operator==(const Approximation&) const = default;
};

// Ranks that run the same micro-batches on the same part of a model, as tensor-parallel ones do: what a gradient that all of them have is due.
struct GradientShare {
  std::vector<std::uint32_t> first;            // by rank: the first of its ranks
  bool copies = false;                         // all of them compute the same, and that of the first stands for it; else the gradient is a sum over them
  Rational divisor{1};                         // of the sum
  std::vector<std::uint32_t> average_group{};  // by rank, of those that stand for a share; empty: the contract's

  bool operator==(const GradientShare&) const = default;
};

// Tokens that the framework itself divides by, beside its divisor: a loss by those of its micro-batch, at least one, or the sum over ranks, in place of its
// average, by those that the documented window has.
struct TokenDivision {
  bool of_window = false;
  std::vector<std::uint32_t> set;  // of_window: by rank, a number for each set of ranks that divide by the same
  std::vector<bool> counts;        // likewise: whether its tokens are among those of its set

  bool operator==(const TokenDivision&) const = default;
};

struct Contract {
  StatedContract stated;
  Groups groups;             // by name: the scenario's, and the framework's own
  bool own_weights = false;  // the loop or the contract weighs contributions by more than one divisor: what is documented and what is meant may differ

  // ---- weights, by the documentation: a contribution is divided by `divisor`, and the sum over ranks by `average_divisor`
  Rational divisor{1};
  Rational average_divisor{1};
  std::optional<TokenDivision> token_division;
  std::vector<std::vector<std::uint32_t>> holders;  // by parameter: the ranks that have it, sorted; empty: all
  std::vector<std::uint32_t> average_group;         // by rank: a number for each set of ranks that average with each other; empty: one
  std::vector<GradientShare> shares;
  std::vector<std::uint32_t> share_of;  // by parameter, into shares; empty: every rank's gradient stands for itself
  BoundaryRule boundary;
  bool replicates_reduced = false;      // every rank holds all of a reduced gradient, and a further reduction of a window sums averages again
  bool reduces_every_backward = false;  // not those at a boundary alone
  bool reduces_in_parts = false;        // the loop has some parts of the model reduce a backward and others not: what a buffer of gradients holds then is documented nowhere
  bool block_is_a_switch = false;       // no_sync sets at both ends what events of the framework's own set too
  bool mixes_own_and_averaged = false;  // one buffer holds own gradients and averages, as backwards were reduced or not, until the loop clears it
  bool steps_own_copies = false;        // each rank's optimizer steps all weights that the rank holds, and gets none from another

  // ---- the way: formats, and scalars that are multiplied in somewhere
  std::optional<Dtype> computed;  // of the gradients that autograd makes; absent: the parameters' own
  Dtype accumulation = Dtype::float32, wire = Dtype::float32;
  std::uint32_t steps_scalar = 1;  // that each micro-batch's loss is divided by
  double predivide_scalar = 1;     // of the average
  std::optional<Approximation> approximation;

  // ---- decisions of a step
  bool skips_nonfinite = false;
  LossScalePolicy loss_scale;
  ClipPolicy clip;
  bool steps_in_model_dtype = false;        // there are no fp32 masters: each step rounds the weights to the model dtype, and goes on from there
  std::vector<OptimizerConfig> optimizers;  // by parameter; a lone one: of all

  bool holds(std::uint32_t rank, std::uint32_t parameter) const;
  bool held_by_all(std::uint32_t parameter) const { return holders.empty() || holders[parameter].empty(); }
  bool average_together(std::uint32_t rank, std::uint32_t other) const { return average_group.empty() || average_group[rank] == average_group[other]; }
  const GradientShare* share(std::uint32_t parameter) const { return share_of.empty() ? nullptr : &shares[share_of[parameter]]; }
  // The rank whose contribution to a parameter this one's gradient is.
  std::uint32_t contributor(std::uint32_t rank, std::uint32_t parameter) const {
    const GradientShare* of = share(parameter);
    return of && of->copies ? of->first[rank] : rank;
  }
  // Whether what one rank contributes to a parameter is due in what the other applies.
  bool due_on(std::uint32_t rank, std::uint32_t other, std::uint32_t parameter) const {
    const GradientShare* of = share(parameter);
    if (!of) return average_together(rank, other);
    const std::uint32_t one = of->first[rank], another = of->first[other];
    return of->average_group.empty() ? average_together(one, another) : of->average_group[one] == of->average_group[another];
  }
  Rational share_divisor(std::uint32_t parameter) const { return share_of.empty() ? Rational(1) : shares[share_of[parameter]].divisor; }
  const OptimizerConfig& optimizer_of(std::uint32_t parameter) const { return optimizers.size() == 1 ? optimizers[0] : optimizers[parameter]; }

  bool operator==(const Contract&) const = default;
};

}  // namespace gradledger
