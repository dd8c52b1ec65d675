// The script unrolled into events, and the bookkeeping that the user's contract implies: which window each event lies in, which
// contribution each backward is, which steps update. Facts of the scenario alone, shared by the simulator and the oracle.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <ranges>
#include <string>
#include <vector>

#include "sim/base/result.h"
#include "sim/scenario/contract.h"
#include "sim/scenario/event.h"
#include "sim/scenario/workload.h"

namespace gradledger {

struct ScriptItem;

inline constexpr std::uint32_t no_contribution = 0xFFFFFFFFu;
inline constexpr std::uint32_t never = 0xFFFFFFFFu;

// One backward event: its contributions, one for each rank that runs it.
struct Backward {
  std::uint32_t event = 0;
  std::uint32_t step = 0;
  std::uint32_t documented = 0;                               // as of an event
  bool boundary = false;                                      // documented to be a gradient accumulation boundary, on some rank
  std::vector<std::uint32_t> micro_batch;                     // by rank: number within the window; no_contribution where the rank does not run it
  std::vector<std::uint32_t> data;                            // by rank: which given micro-batch
  std::optional<std::uint32_t> raises_after;                  // as of an event
  std::vector<std::uint32_t> uses;                            // parameters named by the event; empty: all that the parameters' own rule admits
  std::map<std::uint32_t, std::vector<std::uint32_t>> order;  // by rank: whose gradients are ready first
  std::vector<double> loss_factor;                            // by rank: what the loop multiplies its loss by; empty: 1
  std::vector<Rational> weight;                               // by rank: of the contribution in a correct sum of its rank, by the documentation
  std::vector<Rational> due;                                  // by rank: what it must weigh in the applied gradient of the ranks that average with it
};

// An infinity or NaN in the first element of a parameter's gradient of one contribution. Data, not an event: nothing runs.
struct Plant {
  std::uint32_t backward = 0, rank = 0, parameter = 0;
  double value = 0;
};

// Two questions can be asked of a run. What must the framework make of what it was told: windows and weights by its documentation, in every
// buffer. And what did the loop mean to apply: windows and weights by the contract, in the applied gradient alone.
enum class Layer : std::uint8_t { documented, meant };

struct Timeline {
  Contract contract;  // that it was unrolled under
  std::uint32_t world_size = 1;
  std::vector<Event> events;
  std::vector<std::string> pointers;
  std::vector<Backward> backwards;
  std::uint32_t steps = 0;               // windows, an open one at the end included
  bool two_layers = false;               // the loop states weights or windows of its own: the layers may differ
  std::vector<std::string> group_names;  // that events name
  bool open_window = false;              // contributions after the last update
  // Events after which the documentation has reduced what came before them in their window: backwards outside of blocks, at a boundary or
  // wherever gradients are partitioned, and exits of coalesced blocks. Sorted; the boundaries are a part of them.
  std::vector<std::uint32_t> reductions, boundaries;
  // Backwards that are reduced within a shard alone, which takes the own sums; those that some ranks reduce further than others. Sorted.
  std::vector<std::uint32_t> partial, apart;
  std::vector<std::vector<std::uint32_t>> micro_batches;       // [step][rank]: how many
  std::vector<std::vector<std::uint32_t>> dropped_at;          // [backward][rank]: event of the zero_grad meant to drop it; never otherwise
  std::vector<std::vector<std::uint32_t>> dropped_documented;  // likewise, by the documentation's windows; empty where the windows are the same
  std::vector<std::uint32_t> touched;                          // events that touch gradients, sorted
  std::vector<Plant> planted;                                  // by backward, then rank
  std::vector<std::uint32_t> gradients_set;                    // events that set a gradient
  bool passed_apart = false;                                   // some backward passes_apart(), or a rank runs no forward or step where others do

  std::uint32_t window_of(const Event& e, Layer layer) const { return layer == Layer::meant ? e.step : e.documented; }
  std::uint32_t window_of(const Backward& b, Layer layer) const { return layer == Layer::meant ? b.step : b.documented; }
  // Numbers of a window's backwards: in order, without a gap.
  std::ranges::iota_view<std::uint32_t, std::uint32_t> backwards_of(std::uint32_t window, Layer layer) const;
  bool windows_in_order() const;  // what backwards_of() rests on; a timeline that unroll() makes has it
  bool closes(const Event& e, Layer layer) const { return layer == Layer::meant ? e.updates() : e.closes(); }
  std::uint32_t dropped(std::uint32_t backward, std::uint32_t rank, Layer layer) const {
    return layer == Layer::meant || dropped_documented.empty() ? dropped_at[backward][rank] : dropped_documented[backward][rank];
  }
  // What a contribution weighs in its rank's own sum, and in the average, on a rank. Without what users set since.
  double own_weight(std::uint32_t backward, std::uint32_t rank) const { return value_of(backwards[backward].weight[rank]); }
  double averaged_weight(std::uint32_t backward, std::uint32_t rank, std::uint32_t on_rank, Layer layer) const;
  // Of the own sum by the documentation, or of what is applied as it is meant.
  const Rational& weight_of(std::uint32_t backward, std::uint32_t rank, Layer layer) const {
    return layer == Layer::documented ? backwards[backward].weight[rank] : backwards[backward].due[rank];
  }
  // Whether it is a part of the other rank's average at all.
  bool is_averaged_on(std::uint32_t rank, std::uint32_t on_rank, Layer layer, std::optional<std::uint32_t> parameter = {}) const;
  // How many events a snapshot has behind it: inside a backward that the optimizer runs in, that backward too.
  std::uint32_t events_behind(std::uint32_t event, bool at_end) const { return at_end || events[event].steps_inside() ? event + 1 : event; }
  // Likewise in one parameter, of which ranks may share a gradient. Precondition: counts().
  double averaged_weight_of(std::uint32_t parameter, std::uint32_t backward, std::uint32_t rank, std::uint32_t on_rank, Layer layer) const;
  // The window that a snapshot answers for: in a step that ends it, still the old one.
  std::uint32_t window_at(std::uint32_t event, bool at_end, Layer layer) const { return window_of(events[event], layer) + (at_end && closes(events[event], layer) ? 1 : 0); }
  // Whether the loop touched gradients in the documented window that a snapshot answers for, before it.
  bool touched_at(std::uint32_t event, bool at_end) const {
    return !touched.empty() && !(at_end && closes(events[event], Layer::documented)) && last_before(touched, event + at_end, events[event].documented) != never;
  }
  // Whether ranks disagreed in that window, before it, on whether a backward is reduced.
  bool apart_at(std::uint32_t event, bool at_end) const {
    return !apart.empty() && !(at_end && closes(events[event], Layer::documented)) && last_before(apart, event + at_end, events[event].documented) != never;
  }
  // The last event of a documented window, before an event, that took own sums on; never where there is none.
  std::uint32_t taken_before(std::uint32_t event, std::uint32_t step) const;
  // The last of a documented window's reductions, or boundaries, before an event; never where there is none.
  std::uint32_t reduction_before(std::uint32_t event, std::uint32_t step) const { return last_before(reductions, event, step); }
  std::uint32_t boundary_before(std::uint32_t event, std::uint32_t step) const { return last_before(boundaries, event, step); }
  bool is_boundary(std::uint32_t event) const;
  // Whether a reduction of the window that a snapshot answers for was documented to approximate: how much contributions to a parameter weigh, or the
  // values of it.
  bool approximates_weights(std::uint32_t parameter, std::uint32_t event, bool at_end) const;
  bool approximates_values(std::uint32_t parameter, std::uint32_t event, bool at_end) const;
  // Whether a backward of the event's window, up to it, has not been reduced by the documentation.
  bool waits_for_reduction(std::uint32_t event) const;
  std::uint32_t last_before(const std::vector<std::uint32_t>& list, std::uint32_t event, std::uint32_t step) const;
  std::string describe(std::uint32_t event) const;  // "event 4: backward of micro-batch 3"
  Contribution contribution(std::uint32_t backward, std::uint32_t rank) const;
  // Whether a contribution has a gradient for the parameter; and whether its forward used it, though an exception may have left the backward
  // before.
  bool used(const Workload& workload, std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter) const;
  bool in_graph(const Workload& workload, std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter) const;
  // Whether it is due as the rank's own: of a gradient that several ranks compute alike, that of the first is.
  bool counts(const Workload& workload, std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter) const {
    return contract.contributor(rank, parameter) == rank && used(workload, backward, rank, parameter);
  }
  // True only where every rank that runs the backward counts for the parameter; where it is false, some may.
  bool counts_wherever_it_runs(const Workload& workload, std::uint32_t backward, std::uint32_t parameter) const;
  // Whether a rank passes other parameters in it than another rank that holds them, or in another order.
  bool passes_apart(const Workload& workload, std::uint32_t backward) const;
  // What users multiplied a contribution by since, up to and with an event of its window.
  double factor(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint32_t up_to_event) const;
  // The parameters that autograd passes on a rank, in the order in which their gradients are ready; a tied one at each of its uses. An
  // exception may leave it on the way.
  std::vector<std::uint32_t> ready_order(const Workload& workload, std::uint32_t backward, std::uint32_t rank) const;
};

// What the documentation says of a boundary: a sticky override, else the counter of step() calls or of backwards. One for each rank.
class DocumentedBoundary {
 public:
  explicit DocumentedBoundary(const BoundaryRule& rule) : rule_(rule) {}

  void set(bool boundary) { override_ = boundary; }
  // Of a backward. Unmanaged, none is: every step() is one.
  bool now() const { return rule_.counted && override_.value_or((calls_ + 1) % rule_.calls == 0); }
  // One backward, behind the question.
  void backward() { calls_ += rule_.of_backwards; }
  // Which call of the counter's round the next step() is, from 1; 0 where the counter does not decide.
  std::uint32_t call() const { return rule_.counted && !rule_.of_backwards && !override_ ? static_cast<std::uint32_t>(calls_ % rule_.calls) + 1 : 0; }
  // One call of step(); whether it updates.
  bool step() {
    const bool updates = !rule_.counted || (rule_.of_backwards ? override_.value_or(calls_ > 0 && calls_ % rule_.calls == 0) : now());
    if (!rule_.of_backwards) ++calls_;
    else if (updates) calls_ = 0;
    return updates;
  }

 private:
  BoundaryRule rule_;
  std::uint64_t calls_ = 0;
  std::optional<bool> override_;
};

// Precondition: ranks and names of parameters are the workload's. Errors: too many events or named uses, an `of` that names no forward, an
// overflow that no gradient can hold.
Result<Timeline> unroll(const Workload& workload, const std::vector<ScriptItem>& script, Contract contract);

}  // namespace gradledger
