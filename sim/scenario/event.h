// An event of the unrolled script: what happens, on which ranks, and in which window. What happens is a variant, so that a place that has to
// know every kind of event does not compile before it knows a new one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/scenario/framework_value.h"

namespace gradledger {

// What only an event of that kind has. Groups are indexes of Timeline::group_names.
namespace events {

struct Forward {};

struct Backward {
  bool own_forward = true;                    // runs its own forward first; false: of an explicit one
  std::uint32_t of = 0;                       // the explicit one
  bool scale_wrt_gas = true;                  // divided by gradient_accumulation_steps
  std::uint32_t phases = 1;                   // parameters in this many parts, one after the other
  std::uint32_t summed = 1;                   // of the sum of this many losses; their entries in Timeline::backwards follow each other
  std::optional<std::uint32_t> raises_after;  // an exception leaves autograd after this many gradients
  bool past_scaler = false;                   // not through the loop's GradScaler
  bool direct = false;                        // called on the loss, not on the engine
  bool steps = false;                         // the optimizer runs inside it, on each gradient once that is reduced: its window ends here
  std::uint32_t ordinal = 0;                  // number among all backward events; indexes Timeline::backwards
};

struct SetBoundary {
  bool boundary = false;
};

struct EnterNoSync {};
struct ExitNoSync {};
struct EnterCoalesce {};
struct ExitCoalesce {};

struct Step {
  bool updates = false;      // the contract demands an update here
  bool closes = false;       // by the documentation a window ends here
  bool at_boundary = false;  // the documentation has it update, on some rank
  std::uint32_t call = 0;    // where the counter decides: which call of its round, from 1; 0: something else does
  bool past_scaler = false;  // not through the loop's GradScaler
};

struct EngineZeroGrad {
  bool set_to_none = true;  // false fills with zeros in place
};

struct OptimizerZeroGrad {
  bool set_to_none = true;
};

struct SetGradient {
  std::uint32_t parameter = 0;
  double factor = 1.0;  // that its gradient is multiplied by
  bool local = false;   // each rank its own partition, by an API of its own
};

struct Raise {
  bool caught = false;  // the rank goes on after the blocks that the exception leaves
};

struct ScaleGradients {
  std::vector<double> by;  // by rank
};

struct ClipGradients {
  double max_norm = 0;
  std::uint32_t over = 0;  // the group of the norm
};

struct AllReduce {
  std::uint32_t over = 0;
  bool of_gradients = true;  // false: of a scalar
  bool mean = true;          // false: the sum
};

struct Finalize {};
struct Save {};
struct Restore {};
struct Unscale {};

// One that a framework alone has and reads. The contract knows of it whether it reduces.
struct OfFramework {
  std::string name;
  FrameworkValue arguments;
};

}  // namespace events

using EventBody = std::variant<events::Forward, events::Backward, events::SetBoundary, events::EnterNoSync, events::ExitNoSync, events::EnterCoalesce, events::ExitCoalesce,
                               events::Step, events::EngineZeroGrad, events::OptimizerZeroGrad, events::SetGradient, events::Raise, events::ScaleGradients, events::ClipGradients,
                               events::AllReduce, events::Finalize, events::Save, events::Restore, events::Unscale, events::OfFramework>;

// The alternatives of EventBody, in its order: for tables of kinds.
enum class EventKind : std::uint8_t {
  forward,
  backward,
  set_boundary,
  no_sync_enter,
  no_sync_exit,
  coalesce_enter,
  coalesce_exit,
  step,
  engine_zero_grad,
  optimizer_zero_grad,
  set_gradient,
  raise,
  scale_gradients,
  clip_gradients,
  all_reduce,
  finalize,
  save,
  restore,
  unscale,
  of_framework,
};
static_assert(std::variant_size_v<EventBody> == static_cast<std::size_t>(EventKind::of_framework) + 1);

std::string_view name_of(EventKind kind);

struct Event {
  EventBody body = events::Step{};
  std::uint32_t step = 0;            // window that the event lies in; a step that updates lies in the window that it closes
  std::uint32_t documented = 0;      // likewise, as the documentation has the windows: they differ where the loop states its own
  std::uint32_t item = 0;            // indexes Timeline::pointers: where in the file
  std::vector<std::uint32_t> ranks;  // sorted; empty: all
  bool nobody = false;               // every rank left the block before

  EventKind kind() const { return static_cast<EventKind>(body.index()); }
  // Null where it is something else.
  template <class T>
  const T* as() const {
    return std::get_if<T>(&body);
  }
  template <class T>
  T* as() {
    return std::get_if<T>(&body);
  }
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(body);
  }

  // A backward that the optimizer runs in.
  bool steps_inside() const { return is<events::Backward>() && as<events::Backward>()->steps; }
  // Where the optimizer may run: a call of step(), or inside a backward.
  bool steps() const { return is<events::Step>() || steps_inside(); }
  // A step at which the contract demands an update; at which a documented window ends.
  bool updates() const { return is<events::Step>() ? as<events::Step>()->updates : steps_inside(); }
  bool closes() const { return is<events::Step>() ? as<events::Step>()->closes : steps_inside(); }
  bool zeroes_gradients() const { return is<events::EngineZeroGrad>() || is<events::OptimizerZeroGrad>(); }
  // Called on the loss, not on the engine.
  bool direct() const { return is<events::Backward>() && as<events::Backward>()->direct; }
  // Whether the loop itself changes what the framework has in its buffers of gradients.
  bool touches_gradients() const;
  bool runs_on(std::uint32_t rank) const;
};

}  // namespace gradledger
