// What gradledger has to know of a wrapper of yours: how it is made, what its calls are, and what it holds. The same class is judged inside of a test
// (gradledger/oracle.h) and in processes of its own (gradledger/driver.hpp). Names are those of the scenario format and of the driver protocol.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradledger/communicator.h"

namespace gradledger::GRADLEDGER_API {

// What a buffer is: docs/architecture.md, "Roles", has what each must hold.
enum class Role : std::uint8_t { local, replicated, reduced, master, applied, parameter, master_parameter, first_moment, second_moment, scratch };
enum class Space : std::uint8_t { device, host };
// What a step decided or found out.
enum class Fact : std::uint8_t { skipped, updated, loss_scale, gradient_norm, clipping_norm };

// Thrown by a wrapper that cannot do what a scenario asks of it: it is then not judged by that scenario.
class NotSupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Parameter {
  std::string name;
  std::size_t numel = 0;
  bool trainable = true;
  std::optional<std::uint32_t> tied_to;  // number of another parameter: this is a further use of it
  std::vector<float> weights;            // at first; empty where it is tied
};

// The base optimizer that the scenario asks for.
struct Optimizer {
  std::string type = "SGD";
  double lr = 1, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;  // no tolerance: the default of Adam
};

struct Configuration {
  std::uint32_t rank = 0;  // 0 for a world
  std::uint32_t world_size = 1;
  std::vector<Parameter> parameters;
  Dtype model_dtype = Dtype::fp32;
  std::string config = "{}";  // `engine.config` of the scenario, as JSON: whatever you put there
  Optimizer optimizer;
  bool linear = false;  // decisions that depend on values, as clipping, must be off
  std::uint64_t seed = 0;
};

struct Gradient {
  std::uint32_t parameter = 0;
  std::vector<float> values;  // as autograd deposits them, each a value that the model's dtype holds
};

struct Backward {
  std::uint32_t rank = 0;
  std::uint32_t micro_batch = 0;    // in the window
  std::vector<Gradient> gradients;  // in the order in which they become ready; parameters that the micro-batch does not use are not there
};

// Elements [offset, offset + numel) of a parameter; parameter -1: padding.
struct Piece {
  std::int64_t parameter = 0;
  std::size_t offset = 0, numel = 0;
};

struct Buffer {
  std::string name;
  Role role = Role::scratch;
  Dtype dtype = Dtype::fp32;
  std::vector<Piece> pieces;  // in the order in which they are stored
  std::vector<std::byte> data;
  double scale = 1;  // what is stored is the true gradient times this
  Space space = Space::device;
};

// What a rank holds after an event. Everything is copied.
class Shown {
 public:
  explicit Shown(std::string after) : after_(std::move(after)) {}

  const std::string& after() const { return after_; }  // the event: "backward", "step", ...

  void add(Buffer buffer) { buffers_.push_back(std::move(buffer)); }
  // One tensor that holds these pieces.
  template <class Element>
  void add(Role role, std::string name, std::vector<Piece> pieces, std::span<const Element> values, Dtype dtype, double scale = 1) {
    const std::span<const std::byte> bytes = std::as_bytes(values);
    add(Buffer{std::move(name), role, dtype, std::move(pieces), {bytes.begin(), bytes.end()}, scale});
  }
  // The whole of a parameter, in fp32.
  void add(Role role, std::string name, std::uint32_t parameter, std::span<const float> values, double scale = 1) {
    add(role, std::move(name), {{parameter, 0, values.size()}}, values, Dtype::fp32, scale);
  }
  void fact(Fact fact, double value) { facts_.emplace_back(fact, value); }

  const std::vector<Buffer>& buffers() const { return buffers_; }
  const std::vector<std::pair<Fact, double>>& facts() const { return facts_; }

 private:
  std::string after_;
  std::vector<Buffer> buffers_;
  std::vector<std::pair<Fact, double>> facts_;
};

// What a wrapper promises to show; the verdict relies on it. One that shows weights alone is a black box, and is judged by them.
struct Shows {
  bool applied_gradients = false;  // what the optimizer is given, of every step that updates, on every rank
  bool accumulators = false;       // every buffer that holds a sum of gradients, after every event
  bool weights = false;            // after every step
};

// One rank. What derives from it has a constant `shows`, and overrides the events that it can do: others cannot stand in its scenarios.
// Its calls come one at a time. In a test the ranks of a run have a thread each, of which one runs at a time, and a wrapper may be destroyed by another thread than called it:
// it needs no locks, and keeps nothing in thread_local variables.
class Wrapper {
 public:
  virtual ~Wrapper() = default;

  virtual void backward(const Backward& backward) = 0;
  virtual void step() = 0;
  virtual void forward() { cannot("forward"); }  // whose backward comes later
  virtual void zero_grad() { cannot("zero_grad"); }
  virtual void set_boundary(bool) { cannot("set_boundary"); }
  virtual void enter_no_sync() { cannot("no_sync"); }
  virtual void exit_no_sync() { cannot("no_sync"); }
  virtual void finalize() { cannot("finalize"); }
  virtual void save() { cannot("save"); }
  virtual void restore() { cannot("restore"); }

  // What the rank holds now. What the last step applied has the role `applied`, and counts after a step alone.
  virtual void show(Shown& out) = 0;

 private:
  [[noreturn]] static void cannot(const char* event) { throw NotSupported(std::string("the wrapper has no ") + event); }
};

// All ranks at once, for a wrapper that brings its own communication. `ranks` are those that the script has do it; mostly all.
class World {
 public:
  virtual ~World() = default;

  virtual void backward(std::span<const Backward> by_rank) = 0;
  virtual void step(std::span<const std::uint32_t> ranks) = 0;
  virtual void forward(std::span<const std::uint32_t>) { cannot("forward"); }
  virtual void zero_grad(std::span<const std::uint32_t>) { cannot("zero_grad"); }
  virtual void set_boundary(std::span<const std::uint32_t>, bool) { cannot("set_boundary"); }
  virtual void enter_no_sync(std::span<const std::uint32_t>) { cannot("no_sync"); }
  virtual void exit_no_sync(std::span<const std::uint32_t>) { cannot("no_sync"); }
  virtual void finalize(std::span<const std::uint32_t>) { cannot("finalize"); }
  virtual void save(std::span<const std::uint32_t>) { cannot("save"); }
  virtual void restore(std::span<const std::uint32_t>) { cannot("restore"); }

  // What one of the ranks holds now.
  virtual void show(std::uint32_t rank, Shown& out) = 0;

 private:
  [[noreturn]] static void cannot(const char* event) { throw NotSupported(std::string("the wrapper has no ") + event); }
};

// ---- how one is made ------------------------------------------------------------------------------------------------------------------

struct Abilities {
  std::string name;  // in reports
  Shows shows;
  std::vector<std::string> events;  // of the driver protocol
};

// Wrappers of one rank each. `make` is called as the wrappers are, one call at a time in a run; what it shares between runs in several threads is yours to guard.
struct Ranks {
  Abilities abilities;
  std::function<std::unique_ptr<Wrapper>(const Configuration&, Communicator&)> make;
};

// Wrappers of all ranks.
struct Worlds {
  Abilities abilities;
  std::function<std::unique_ptr<World>(const Configuration&)> make;
};

namespace detail {

// A method that is inherited has the type of its base.
template <class Base, class Derived, class Method>
constexpr bool overridden(Method Derived::*) {
  return !std::is_same_v<Base, Derived>;
}

template <class Base, class W>
Abilities abilities_of(std::string name) {
  static_assert(
      requires { W::shows.applied_gradients; }, "a wrapper says what it shows: static constexpr gradledger::Shows shows{.applied_gradients = true, ...};");
  Abilities out{std::move(name), W::shows, {"backward", "step"}};
  const auto add = [&](bool has, std::initializer_list<const char*> events) {
    if (has) out.events.insert(out.events.end(), events.begin(), events.end());
  };
  add(overridden<Base>(&W::forward), {"forward"});
  add(overridden<Base>(&W::zero_grad), {"zero_grad"});
  add(overridden<Base>(&W::set_boundary), {"set_boundary"});
  add(overridden<Base>(&W::enter_no_sync) && overridden<Base>(&W::exit_no_sync), {"enter_no_sync", "exit_no_sync"});
  add(overridden<Base>(&W::finalize), {"finalize"});
  add(overridden<Base>(&W::save) && overridden<Base>(&W::restore), {"save", "restore"});
  return out;
}

}  // namespace detail

// Made anew for each run: W(const Configuration&, Communicator&, more...).
template <class W, class... More>
Ranks ranks(std::string name, More... more) {
  return {detail::abilities_of<Wrapper, W>(std::move(name)),
          [more...](const Configuration& configuration, Communicator& communicator) { return std::make_unique<W>(configuration, communicator, more...); }};
}

// W(const Configuration&, more...).
template <class W, class... More>
Worlds world(std::string name, More... more) {
  return {detail::abilities_of<World, W>(std::move(name)), [more...](const Configuration& configuration) { return std::make_unique<W>(configuration, more...); }};
}

}  // namespace gradledger::GRADLEDGER_API
