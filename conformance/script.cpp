#include "conformance/script.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "conformance/window.h"
#include "sim/base/limits.h"
#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/contract.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/scenario/timeline.h"

namespace gradledger::conform {
namespace {

// Of a forward, or of a backward with its own one.
constexpr const char* forward_options[] = {"use", "value", "values", "inf"};
// A rank's own accumulators are not touched by these, which ask for what is there.
const std::set<std::string> reads{"safe_get_full_grad", "safe_get_full_fp32_param", "safe_get_full_optimizer_state", "safe_get_local_grad"};
// Or by these, which say in which mode the module's own layers run.
const std::set<std::string> modes{"train", "eval"};

bool is_power_of_two(const Rational& x) {
  int exponent = 0;
  return x > 0 && std::frexp(value_of(x), &exponent) == 0.5;
}

// Operations become events one for one, but for those that change nothing, those that ranks do in different ways, and blocks, which become nested
// items.
class ScriptBuilder {
 public:
  ScriptBuilder(const Scenario& scenario, std::uint32_t micro_batch_size, GivenValues& values)
      : scenario_(scenario),
        micro_batch_size_(micro_batch_size),
        values_(values),
        recorded_(static_cast<std::uint32_t>(values.size())),
        window_(deepspeed::boundary_rule(deepspeed_config(scenario))),
        behaviour_(*resolve_behaviour(scenario.engine.as_of)) {
    out_.events.resize(scenario.world_size);
    blocks_.emplace_back();
  }

  void add(const Field& op) {
    if (const auto boundary = window_.to_set(); boundary && asks_for_boundary(op)) put(boundary_item(*boundary));
    const std::string& kind = op.at(0).text(limits::name_length_max);
    out_.reads.push_back(reads.contains(kind));
    if (kind == "fb" || kind == "b" || kind == "torch") backward(op, kind);
    else if (kind == "f" || (kind == "eval" && op.json().size() > 1)) forward(op, kind == "f");
    else if (kind == "boundary" || kind == "boundary_none") boundary(op, kind);
    else if (kind == "set_train_batch_size") batch_size(op);
    else if (kind == "step") step();
    else if (kind == "zero_grad" || kind == "opt_zero_grad") put_for_all(kind == "zero_grad" ? ScriptKind::engine_zero_grad : ScriptKind::optimizer_zero_grad);
    else if (kind == "no_sync" || kind == "coalesce") open_block(kind == "no_sync" ? ScriptKind::no_sync : ScriptKind::coalesce);
    else if (kind == "end") close_block();
    else if (!out_.reads.back() && !modes.contains(kind)) refuse("operation \"" + kind + "\"");
    for (auto& events : out_.events)
      if (events.size() < out_.reads.size()) events.push_back(never);
  }

  Script take() {
    if (blocks_.size() > 1) refuse("a block that does not end");
    out_.items = std::move(blocks_.front().items);
    return std::move(out_);
  }

 private:
  // Of one rank: the micro-batch that its data are of, and the parameters that take part, in the order in which the loss adds them. None: all.
  struct Taking {
    std::vector<std::uint32_t> uses;
    bool operator<(const Taking& other) const { return uses < other.uses; }
  };
  struct Inputs {
    std::uint32_t micro_batch = 0;
    std::vector<Taking> taking;  // by rank
  };
  struct Forward {
    std::uint32_t number = 0;  // in its window
    Inputs inputs;
  };

  // What the engine does by itself goes by the flag as well, but it was asked for when it was set.
  static bool asks_for_boundary(const Field& op) {
    static const std::set<std::string> kinds{"fb", "b", "torch", "f", "eval", "step", "coalesce", "end"};
    const std::string& kind = op.at(0).text(limits::name_length_max);
    return kinds.contains(kind);
  }

  static ScriptItem boundary_item(bool boundary) {
    ScriptItem item;
    item.kind = ScriptKind::set_boundary;
    item.boundary = boundary;
    return item;
  }

  void boundary(const Field& op, const std::string& kind) {
    if (kind == "boundary_none" || op.at(1).json().is_null()) return window_.set(std::nullopt);
    const bool value = op.at(1).flag();
    window_.set(value);
    window_.shows(value);
    put(boundary_item(value));
    note(all_ranks());
  }

  void batch_size(const Field& op) {
    const std::uint64_t of_a_step = std::uint64_t{micro_batch_size_} * scenario_.world_size;
    const std::uint32_t size = op.at(1).count(1, std::numeric_limits<std::uint32_t>::max());
    if (size % of_a_step != 0) return refuse("a batch size that is no multiple of what the ranks take at a time");
    window_.set_steps(static_cast<std::uint32_t>(size / of_a_step));
  }

  void step() {
    put_for_all(ScriptKind::step);
    if (window_.step()) forward_count_ = 0;  // forwards are numbered by window
  }

  void forward(const Field& op, bool trains) {
    const Inputs inputs = inputs_of(op, op.at(1).count(0, recorded_ - 1));
    ScriptItem item;
    item.kind = ScriptKind::forward;
    put(std::move(item));
    note(all_ranks());
    if (trains) forwards_[op.at(1).count(0, recorded_ - 1)] = {forward_count_, inputs};
    ++forward_count_;
  }

  void backward(const Field& op, const std::string& kind) {
    const std::uint32_t recorded = op.at(1).count(0, recorded_ - 1);
    ScriptItem item;
    item.kind = ScriptKind::backward;
    Inputs inputs;
    if (kind == "b") {
      const auto forward = forwards_.find(recorded);
      if (forward == forwards_.end()) return refuse("a backward without its forward");
      item.of = forward->second.number;
      inputs = forward->second.inputs;
    }
    if (kind != "b" || gives_inputs(op)) inputs = inputs_of(op, recorded);
    item.direct = kind == "torch";
    options_of(op, item);
    item.micro_batch = inputs.micro_batch;
    if (const Rational weight = window_.weight(); weight != 1 && is_divided(item)) {
      if (!is_power_of_two(weight) && !is_power_of_two(Rational(deepspeed_config(scenario_).gradient_accumulation_steps)))
        return refuse("a batch size whose divisor cannot be made of the configured one without rounding");
      item.weight = {{Formula(weight)}};
      out_.weighs = true;
    }
    // Ranks that do the same share an item.
    std::map<Taking, std::vector<std::uint32_t>> groups;
    for (std::uint32_t r = 0; r < scenario_.world_size; ++r) groups[inputs.taking[r]].push_back(r);
    for (const auto& [taking, ranks] : groups) put_backward(item, taking, ranks);
  }

  // Whether the engine divides the gradient by its gradient_accumulation_steps.
  bool is_divided(const ScriptItem& item) {
    if (!item.direct) scale_wrt_gas_ = item.scale_wrt_gas;
    const bool in_no_sync = std::any_of(blocks_.begin() + 1, blocks_.end(), [](const ScriptItem& block) { return block.kind == ScriptKind::no_sync; });
    switch (behaviour_.scale_site) {
      case ScaleSite::loss: return !item.direct && !in_no_sync && item.scale_wrt_gas;
      case ScaleSite::output_hook: return scale_wrt_gas_ || behaviour_.scale_wrt_gas_in_hook == ScaleWrtGas::ignored;
      case ScaleSite::engine_loss: return item.direct || item.scale_wrt_gas;
    }
    return false;
  }

  void put_backward(ScriptItem item, const Taking& taking, const std::vector<std::uint32_t>& ranks) {
    for (const std::uint32_t p : taking.uses) item.uses.push_back(scenario_.parameters[p].name);
    // Autograd goes through the terms of the loss from the last to the first, as it does through the parameters where nothing else is said.
    if (!std::is_sorted(taking.uses.begin(), taking.uses.end()))
      for (const std::uint32_t r : ranks) item.order[r].assign(item.uses.rbegin(), item.uses.rend());
    if (ranks.size() < scenario_.world_size) item.ranks = ranks;
    put(std::move(item));
    note(ranks);
  }

  static bool gives_inputs(const Field& op) {
    return op.json().size() > 2 && std::any_of(std::begin(forward_options), std::end(forward_options), [&](const char* option) { return op.at(2).has(option); });
  }

  // What is asked of the backward itself.
  void options_of(const Field& op, ScriptItem& item) {
    if (op.json().size() < 3) return;
    for (const auto& [option, value] : op.at(2).members()) {
      if (option == "scale_wrt_gas") item.scale_wrt_gas = value.flag();
      else if (option == "torch" || option == "direct") item.direct = value.flag();
      // A graph that is used again shows in the script.
      else if (option != "retain_graph" && std::find(std::begin(forward_options), std::end(forward_options), option) == std::end(forward_options))
        refuse("an operation with option \"" + option + "\"");
    }
  }

  // A single variant holds what all the options of an operation ask for: first the values, then what is done to them.
  Inputs inputs_of(const Field& op, std::uint32_t recorded) {
    Inputs out{recorded, std::vector<Taking>(scenario_.world_size)};
    if (op.json().size() < 3) return out;
    const Field given = op.at(2);
    std::vector<std::vector<double>> ranks = values_[recorded];
    if (given.has("value")) fill(ranks, std::vector<double>(ranks.size(), given.at("value").number()));
    if (given.has("values")) fill(ranks, given.at("values").exactly(ranks.size()));
    if (given.has("inf"))
      for (const Field& rank : given.at("inf").entries(scenario_.world_size))
        if (std::vector<double>& of_rank = ranks[rank.count(0, scenario_.world_size - 1)]; !of_rank.empty()) of_rank.front() = std::numeric_limits<double>::infinity();
    if (given.has("use")) uses(given.at("use"), out);
    if (ranks == values_[recorded]) return out;
    values_.push_back(std::move(ranks));
    out.micro_batch = static_cast<std::uint32_t>(values_.size() - 1);
    return out;
  }

  static void fill(std::vector<std::vector<double>>& ranks, const std::vector<double>& with) {
    for (std::size_t r = 0; r < ranks.size(); ++r) std::fill(ranks[r].begin(), ranks[r].end(), with[r]);
  }

  // One list for all ranks, or one for each.
  void uses(const Field& value, Inputs& out) {
    if (!value.json().is_object()) {
      const std::vector<std::uint32_t> list = parameters(value);
      for (Taking& taking : out.taking) taking.uses = list;
    } else {
      const auto lists = value.members();
      if (lists.size() != scenario_.world_size)
        value.fail("has lists for " + std::to_string(lists.size()) + " ranks; expected one for each of " + std::to_string(scenario_.world_size));
      for (std::uint32_t r = 0; r < scenario_.world_size; ++r) out.taking[r].uses = parameters(value.at(std::to_string(r)));
    }
    if (std::any_of(out.taking.begin(), out.taking.end(), [](const Taking& taking) { return taking.uses.empty(); })) refuse("a backward that uses no parameter");
  }

  std::vector<std::uint32_t> parameters(const Field& list) const {
    const auto count = static_cast<std::uint32_t>(scenario_.parameters.size());
    std::vector<std::uint32_t> out;
    std::vector<bool> named(count);
    for (const Field& p : list.entries(count)) {
      out.push_back(p.count(0, count - 1));
      if (named[out.back()]) p.fail("names a parameter for the second time; expected each once");
      named[out.back()] = true;
    }
    return out;
  }

  void open_block(ScriptKind kind) {
    blocks_.emplace_back();
    blocks_.back().kind = kind;
    ++next_event_;
    note(all_ranks());
  }

  void close_block() {
    if (blocks_.size() == 1) return refuse("the end of a block that did not begin");
    ScriptItem done = std::move(blocks_.back());
    blocks_.pop_back();
    blocks_.back().items.push_back(std::move(done));
    ++next_event_;
    note(all_ranks());
  }

  // ---- items and the events that they become --------------------------------------------------------------------------------------------

  void put_for_all(ScriptKind kind) {
    ScriptItem item;
    item.kind = kind;
    put(std::move(item));
    note(all_ranks());
  }

  // An event of its own. A block has one where it begins and one where it ends.
  void put(ScriptItem item) {
    blocks_.back().items.push_back(std::move(item));
    ++next_event_;
  }

  // The event before this is the operation's on these ranks.
  void note(const std::vector<std::uint32_t>& ranks) {
    for (const std::uint32_t r : ranks) out_.events[r].push_back(next_event_ - 1);
  }

  std::vector<std::uint32_t> all_ranks() const {
    std::vector<std::uint32_t> out(scenario_.world_size);
    for (std::uint32_t r = 0; r < scenario_.world_size; ++r) out[r] = r;
    return out;
  }

  void refuse(std::string why) {
    if (!out_.inexpressible) out_.inexpressible = std::move(why);
  }

  const Scenario& scenario_;
  std::uint32_t micro_batch_size_;
  GivenValues& values_;
  std::uint32_t recorded_;  // micro-batches of the recording; variants come after them
  RecordedWindow window_;
  Behaviour behaviour_;
  bool scale_wrt_gas_ = true;       // of the last backward that was called on the engine
  std::vector<ScriptItem> blocks_;  // the script, and what of the open blocks there is
  std::map<std::uint32_t, Forward> forwards_;
  std::uint32_t forward_count_ = 0;  // in the window
  std::uint32_t next_event_ = 0;
  Script out_;
};

}  // namespace

Script make_script(const Field& operations, std::uint32_t micro_batch_size, const Scenario& scenario, GivenValues& values) {
  ScriptBuilder builder(scenario, micro_batch_size, values);
  for (const Field& op : operations.entries(limits::events_max)) builder.add(op);
  return builder.take();
}

}  // namespace gradledger::conform
