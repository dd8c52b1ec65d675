// What searches may vary of a framework, and what they may leave out again. A framework without one is not searched.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/result.h"
#include "sim/frameworks/drawing.h"
#include "sim/frameworks/framework.h"
#include "sim/frameworks/tuning.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"

namespace gradledger {

// What an engine does with gradients, as far as that decides which faults it can have.
struct EngineTraits {
  bool reduces_to_owners = false;       // an averaged gradient ends in parts, each on the rank that steps it
  bool reduces_every_backward = false;  // and not those at a boundary alone
  bool accumulates_itself = false;      // micro-batches are added up in a buffer of its own; false: by autograd
  bool gathers_weights = false;         // each rank updates a part of replicated weights
  bool averages_by_operator = false;    // in all its collectives: nothing divides, and a collective that averages is none too many
  bool offloads = false;                // the optimizer, and what it steps on, live on the host
};

// An engine as a campaign names it: a configuration that makes the framework take one gradient lifecycle.
struct Variant {
  std::string_view name;  // "zero2-offload"; no two frameworks have one of the same name
  std::string_view meaning;
  EngineTraits traits;
  void (*apply)(Scenario&);  // the framework, and the options without which the lifecycle is another
};

// What a script may say to a configuration. Views the scenario.
class Calls {
 public:
  virtual ~Calls() = default;

  // Whether the framework, or the language, takes an event there. in_block: in no_sync or a coalesced block; direct: a backward of the loss.
  virtual bool takes(EventKind event, bool in_block, bool direct) const = 0;
  // Whether the framework says where windows end, by a counter or a call on the engine; false: every step() ends one.
  virtual bool manages_windows() const = 0;
  virtual bool sets_gradients() const { return false; }       // an API that replaces a reduced gradient
  virtual bool sets_own_partitions() const { return false; }  // likewise, by each rank for its part
};

// The window that a script gets next, where the framework draws it.
struct WindowSlot {
  std::uint32_t micro_batches = 1;
  bool first = true;          // of the script
  bool as_documented = true;  // false: with what loses gradients by the documentation, too
};

// The loop that users of every framework write: windows of as many micro-batches each, whose mean over micro-batches and ranks is applied. Where the
// framework does not divide by the micro-batches the loop does, in its loss.
struct PlainLoop {
  std::uint32_t windows = 1, micro_batches = 1;
  bool defers = false;  // micro-batches but the last of a window are left unreduced, where the framework has a block for that
};

// A call of a framework's own, as explorations spell it: "finalize_model_grads".
struct OwnLetter {
  std::string_view name;
  ScriptItem item;  // an event, or a repeat of one time: the event with the backwards that the call runs itself. Such a call stands in no block.
};

// Makes a configuration simpler; false where there is nothing to change.
using Simplification = std::function<bool(Scenario&)>;

class SearchSpace {
 public:
  virtual ~SearchSpace() = default;

  virtual std::span<const Variant> variants() const = 0;
  // Further ones: drawn where they are named, and left out where all are meant.
  virtual std::span<const Variant> further_variants() const { return {}; }
  // The variant that a configuration comes to, by name. Precondition: select() succeeds.
  virtual std::string variant_of(const Scenario& scenario) const = 0;

  // ---- what is drawn. The order of draws is what a seed means: it does not change.
  virtual std::span<const FeatureInfo> features() const = 0;
  // Before the parameters are there: dtypes, and one of the variants. What the framework refuses may come out.
  virtual void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out) const = 0;
  // When the parameters are there: the rest of the configuration.
  virtual void draw_options(Draws& draws, const Swarm& swarm, Scenario& out) const = 0;
  // Out of a drawn configuration: what no release does right yet, however it is used.
  virtual void leave_out_open_defects(Scenario&) const {}
  virtual std::unique_ptr<Calls> calls(const Scenario& scenario) const = 0;
  // A window at the end of the script, where a loop of the framework needs calls in it that no other has: the framework knows their order.
  // May set what the window must agree with. False: it is drawn from the events that all frameworks have.
  virtual bool draw_window(const WindowSlot&, Draws&, const Swarm&, Scenario& /*out*/) const { return false; }
  // In place of the script, as the documentation writes it; with the options that go with it.
  virtual void write_loop(const PlainLoop& loop, Scenario& out) const = 0;
  // The framework's own calls that a script of the configuration may have anywhere.
  virtual std::vector<OwnLetter> letters(const Scenario&) const { return {}; }

  // ---- what is tried and left out
  // The events of an exploration that names none, as search/sequences/alphabet.h spells them.
  virtual std::vector<std::string> alphabet(const Scenario& scenario) const = 0;
  // Puts a small world onto so many tensor-parallel ranks, where the framework adds up by itself what they have of a gradient. False: it is not explored so.
  virtual bool share(Scenario&, std::uint32_t /*ranks*/) const { return false; }
  // Options to their defaults, one by one; what decides which variant it is stays.
  virtual std::vector<Simplification> simplifications() const = 0;
  // Out of the configuration, a parameter that the scenario has no more.
  virtual void forget_parameter(Scenario&, const std::string&) const {}

  // ---- what is seen
  // Equal for configurations in which one thing wrong is likely to be one defect.
  virtual std::uint64_t alike(const Scenario& scenario) const = 0;
  // Whether device work runs on more than one stream, so that races are worth looking for.
  virtual bool uses_streams(const Scenario&) const { return true; }

  // Whether a script can be written as the framework documents it by what search/blame knows: boundary calls, or a counter of step() calls.
  virtual bool has_documented_form() const { return false; }

  virtual const Tuning& tuning() const = 0;
};

// Precondition: the scenario's framework is searched.
const SearchSpace& search_space_of(const Scenario& scenario);
inline const Tuning& tuning_of(const Scenario& scenario) { return search_space_of(scenario).tuning(); }

}  // namespace gradledger
