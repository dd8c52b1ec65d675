#include "conformance/torch/script.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/numeric/dtype_names.h"
#include "sim/scenario/timeline.h"
#include "conformance/recording.h"
#include "conformance/torch/wrapper.h"

namespace gradledger::conform::torch {
namespace {

using nlohmann::json;

Dtype dtype_of(const std::string& name) {
  if (const auto dtype = floating_dtype_named(name)) return *dtype;
  throw Inexpressible{"parameters in " + name};
}

// Operations to items, each with the event that it becomes.
class Builder {
 public:
  Builder(const Run& run, const Wrapper& wrapper, Expressed& out) : run_(run), wrapper_(wrapper), out_(out), values_(run.gradients) {}

  void build() {
    blocks_.emplace_back();
    out_.events.resize(run_.world);
    for (ScriptItem& item : wrapper_.before_the_script(run_)) {
      blocks_.back().push_back(std::move(item));
      ++next_event_;
    }
    const Field operations(run_.operations, "/spec/ops");
    const std::vector<Field> all = operations.entries(limits::events_max);
    for (number_ = 0; number_ < all.size(); ++number_) add(all[number_]);
    if (blocks_.size() != 1) throw Inexpressible{"a block that does not end"};
    out_.scenario.script = std::move(blocks_.front());
    // Loops that weigh losses must say what they mean by it; the replay does not ask.
    if (weighs_) out_.scenario.contract.normaliser = Normaliser::window;
    out_.scenario.gradients.kind = GradientKind::values;
    out_.scenario.gradients.values = std::make_shared<GivenValues>(std::move(values_));
  }

 private:
  static const json& options(const Field& op) {
    static const json none = json::object();
    return op.json().size() > 1 && op.json().back().is_object() ? op.json().back() : none;
  }

  void add(const Field& op) {
    const std::string& kind = op.at(0).text(limits::name_length_max);
    if (kind == "join") throw Inexpressible{"Join, in which ranks that are done follow the others"};
    if (kind == "no_sync") return enter(op);
    if (kind == "end") return leave();
    if (kind == "fb" || kind == "b" || kind == "fsum") return backward(op, kind);
    ScriptItem item;
    item.ranks = ranks_of(op);
    if (item.ranks.empty()) return skip();
    if (kind == "f") {
      const std::uint32_t micro_batch = op.at(1).count(0, static_cast<std::uint32_t>(run_.gradients.size() - 1));
      item.kind = ScriptKind::forward;
      forwards_[micro_batch] = forward_count_++;
    } else if (kind == "step" || kind == "scaler_step") {
      item.past_scaler = kind == "step" && has_scaler(run_);
      item.kind = ScriptKind::step;
      forwards_.clear();
      forward_count_ = 0;
    } else if (kind == "zero_grad" || kind == "module_zero_grad") {
      item.kind = kind == "zero_grad" ? ScriptKind::optimizer_zero_grad : ScriptKind::engine_zero_grad;
      item.set_to_none = !options(op).contains("set_to_none") || op.at(op.json().size() - 1).at("set_to_none").flag();
    } else if (kind == "clip") {
      item.kind = ScriptKind::clip;
      item.max_norm = op.at(1).number();
      item.over = wrapper_.clips_over();
    } else if (kind == "unscale") {
      item.kind = ScriptKind::unscale;
    } else if (kind == "div_grads") {
      item.kind = ScriptKind::scale_gradients;
      item.by = Formula(one_over(op.at(1)));
      weighs_ = true;
    } else if (kind == "all_reduce_grads") {
      item.kind = ScriptKind::all_reduce;
      item.mean = false;
    } else {
      wrapper_.own_operation(run_, op, item);
    }
    put(std::move(item));
  }

  // Exact where the divisor is a power of two: gradients are multiplied by what losses and gradients are divided by.
  static Rational one_over(const Field& field) {
    const double divisor = field.number();
    if (!(divisor >= 1) || divisor > 65536 || std::exp2(std::round(std::log2(divisor))) != divisor) throw Inexpressible{"a division by a number that is no power of two"};
    return Rational(1) / Rational(static_cast<std::int64_t>(divisor));
  }

  // Those that the operation names, as far as they got.
  std::vector<std::uint32_t> ranks_of(const Field& op) const {
    const json& given = options(op);
    std::vector<std::uint32_t> out;
    for (std::uint32_t r = 0; r < run_.world; ++r) {
      const bool named = !given.contains("ranks") || std::find(given["ranks"].begin(), given["ranks"].end(), r) != given["ranks"].end();
      const std::size_t length = std::min(run_.ranks[r].size(), out_.judged[r] + 1);
      if (named && (number_ < length || (loses_a_peer(run_) && number_ == run_.ranks[r].size()))) out.push_back(r);
    }
    return out;
  }

  void enter(const Field& op) {
    if (options(op).contains("ranks")) throw Inexpressible{"no_sync on some ranks only"};
    note(all_ranks());
    blocks_.emplace_back();
  }

  void leave() {
    if (blocks_.size() == 1) throw Inexpressible{"the end of a block that did not begin"};
    ScriptItem block;
    block.kind = ScriptKind::no_sync;
    block.items = std::move(blocks_.back());
    blocks_.pop_back();
    blocks_.back().push_back(std::move(block));
    note(all_ranks());
  }

  std::vector<std::uint32_t> all_ranks() const {
    std::vector<std::uint32_t> out(run_.world);
    for (std::uint32_t r = 0; r < run_.world; ++r) out[r] = r;
    return out;
  }

  // The next event is the operation's on these ranks; the others are where they were.
  void note(const std::vector<std::uint32_t>& ranks) {
    skip();
    for (const std::uint32_t r : ranks) out_.events[r].back() = next_event_;
    ++next_event_;
  }

  void skip() {
    for (auto& events : out_.events)
      if (events.size() == number_) events.push_back(never);
  }

  void put(ScriptItem item) {
    note(item.ranks);
    if (item.ranks.size() == run_.world) item.ranks.clear();
    blocks_.back().push_back(std::move(item));
  }

  // Ranks whose forwards use different parameters, or of which one raises, run items of their own.
  void backward(const Field& op, const std::string& kind) {
    const json& given = options(op);
    std::map<std::string, ScriptItem> items;
    for (const std::uint32_t r : ranks_of(op)) {
      ScriptItem item = backward_of_rank(op, kind, given, r);
      const std::string key = json{item.uses, item.raises_after.value_or(never)}.dump();
      ScriptItem& shared = items.emplace(key, std::move(item)).first->second;
      shared.ranks.push_back(r);
    }
    if (items.empty()) return skip();
    for (auto& [key, item] : items) put(std::move(item));
  }

  ScriptItem backward_of_rank(const Field& op, const std::string& kind, const json& given, std::uint32_t rank) {
    ScriptItem item;
    item.kind = ScriptKind::backward;
    const auto micro_batches = static_cast<std::uint32_t>(run_.gradients.size());
    if (kind == "fsum") {
      const std::vector<Field> terms = op.at(1).entries(micro_batches);
      if (terms.empty()) op.at(1).fail("is empty; expected at least one micro-batch");
      item.sum_of = static_cast<std::uint32_t>(terms.size());
      item.micro_batch = terms.front().count(0, micro_batches - 1);
      for (std::size_t i = 0; i < terms.size(); ++i)
        if (terms[i].count(0, micro_batches - 1) != *item.micro_batch + i) throw Inexpressible{"a sum of micro-batches that do not follow each other"};
    } else {
      item.micro_batch = op.at(1).count(0, micro_batches - 1);
    }
    if (kind == "b") {
      const auto forward = forwards_.find(*item.micro_batch);
      if (forward == forwards_.end()) throw Inexpressible{"a backward whose forward ran before the last step"};
      item.of = forward->second;
    }
    const std::vector<std::uint32_t> used = use(given, rank);
    if (used.size() != run_.sizes.size())
      for (const std::uint32_t p : used) item.uses.push_back(name(p));
    if (run_.root_at_end)
      for (std::uint32_t r = 0; r < run_.world; ++r)
        for (std::uint32_t p = run_.in_root; p-- > 0;) item.order[r].push_back(name(p));
    if (given.contains("raise_in")) item.raises_after = raises_after(given["raise_in"], rank, used);
    weighs_ |= given.contains("divide");
    if (given.contains("divide")) item.weight = {{Formula(one_over(Field(given["divide"], "/divide")))}};
    item.past_scaler = !given.contains("scaler") && has_scaler(run_);
    if (given.contains("planned_inf")) item.micro_batch = with_infinite_loss(*item.micro_batch, given["planned_inf"]);
    return item;
  }

  static std::string name(std::uint32_t p) { return "param" + std::to_string(p); }

  // One list for all ranks, or one for each; all parameters where none is given. Frozen ones have no gradient.
  std::vector<std::uint32_t> use(const json& given, std::uint32_t rank) const {
    const auto count = static_cast<std::uint32_t>(run_.sizes.size());
    std::vector<std::uint32_t> out;
    if (!given.contains("use")) {
      for (std::uint32_t p = 0; p < count; ++p) out.push_back(p);
      return out;
    }
    const Field use(given["use"], "/use");
    const Field list = use.json().is_object() ? use.at(std::to_string(rank)) : use;
    for (const Field& p : list.entries(count)) out.push_back(p.count(0, count - 1));
    std::sort(out.begin(), out.end());
    return out;
  }

  // Gradients that are made before the exception: those of units behind the one that raises.
  std::optional<std::uint32_t> raises_after(const json& raise_in, std::uint32_t rank, const std::vector<std::uint32_t>& used) const {
    if (raise_in.is_object()) {
      const auto of_rank = raise_in.find(std::to_string(rank));
      return of_rank == raise_in.end() ? std::nullopt : raises_after(*of_rank, rank, used);
    }
    const bool in_root = raise_in == "root";
    const std::uint32_t unit = in_root ? 0 : Field(raise_in, "/raise_in").count(0, static_cast<std::uint32_t>(run_.in_units.size() - 1));
    std::uint32_t out = 0;
    for (const std::uint32_t p : used) {
      if (!out_.scenario.parameters[p].trainable) continue;
      const bool of_root = p < run_.in_root;
      if (in_root) out += !of_root && !run_.root_at_end;
      else out += of_root ? run_.root_at_end : unit_of(p) > unit;
    }
    return out;
  }

  std::uint32_t unit_of(std::uint32_t p) const {
    std::uint32_t unit = 0, first = run_.in_root;
    while (p >= first + run_.in_units[unit]) first += run_.in_units[unit++];
    return unit;
  }

  // The loss of some ranks is infinite: a micro-batch of its own, whose every element is multiplied by it.
  std::uint32_t with_infinite_loss(std::uint32_t micro_batch, const json& ranks) {
    if (const auto known = infinite_.find(micro_batch); known != infinite_.end()) return known->second;
    std::vector<std::vector<double>> variant = values_[micro_batch];
    for (const Field& rank : Field(ranks, "/planned_inf").entries(run_.world))
      for (double& x : variant[rank.count(0, run_.world - 1)]) x *= std::numeric_limits<double>::infinity();
    values_.push_back(std::move(variant));
    return infinite_[micro_batch] = static_cast<std::uint32_t>(values_.size() - 1);
  }

  const Run& run_;
  const Wrapper& wrapper_;
  Expressed& out_;
  GivenValues values_;
  std::size_t number_ = 0;
  std::uint32_t next_event_ = 0;
  std::vector<std::vector<ScriptItem>> blocks_;      // the script, and what of the open blocks there is
  std::map<std::uint32_t, std::uint32_t> forwards_;  // by micro-batch: number since the last step
  std::uint32_t forward_count_ = 0;
  bool weighs_ = false;
  std::map<std::uint32_t, std::uint32_t> infinite_;  // by micro-batch: its variant
};

// gloo reports a peer that is gone as a closed connection, and one that does not come after some seconds, where the replay waits for ever. What
// follows is a consequence of it.
bool is_lost(const Moment& m) { return m.error.find(" peer") != std::string::npos || m.error.find("Timed out waiting") != std::string::npos; }

// Where a peer's process is aborted, an operation that raises may have got from it what the peer meant for another: gloo does not look.
std::size_t judged(const Run& run, std::size_t rank) {
  const std::vector<Moment>& moments = run.ranks[rank];
  auto out = static_cast<std::size_t>(std::find_if(moments.begin(), moments.end(), is_lost) - moments.begin());
  for (const std::vector<Moment>& peer : run.ranks)
    if (loses_a_peer(run) && peer.size() < out && !moments[peer.size()].error.empty()) out = peer.size();
  return out;
}

}  // namespace

bool has_scaler(const Run& run) {
  for (const json& op : run.operations)
    for (const json& word : op)
      if (word.is_object() && word.contains("scaler")) return true;
  return false;
}

// A recorder that ended a run whose ranks all went on tells nothing of them.
bool loses_a_peer(const Run& run) {
  const bool lost = std::any_of(run.ranks.begin(), run.ranks.end(), [](const auto& moments) { return std::any_of(moments.begin(), moments.end(), is_lost); });
  return !run.ended_by.empty() && (lost || run.ended_by.find("still waiting") == std::string::npos);
}

Result<Expressed> express(const Run& run) {
  try {
    Expressed out;
    out.scenario.name = run.name;
    out.scenario.world_size = run.world;
    out.scenario.model_dtype = dtype_of(run.dtype);
    out.scenario.after_error = AfterError::go_on;
    for (std::size_t p = 0; p < run.sizes.size(); ++p) {
      out.scenario.parameters.push_back({"param" + std::to_string(p), run.sizes[p], std::nullopt});
      if (!run.dtypes.empty()) out.scenario.parameters.back().dtype = dtype_of(run.dtypes[p]);
    }
    const std::unique_ptr<Wrapper> wrapper = wrapper_of(run.framework);
    wrapper->configure(run, out.scenario);
    if (!run.refusal.empty()) return out;
    if (run.gradients.empty()) return InputError{"/grads", "is null; expected gradients, as no rank was refused"};
    for (std::size_t r = 0; r < run.world; ++r) out.judged.push_back(judged(run, r));
    Builder(run, *wrapper, out).build();
    return out;
  } catch (const Unreadable& unreadable) {
    return unreadable.error;
  } catch (const Inexpressible& reason) {
    return InputError{inexpressible, reason.why};
  }
}

}  // namespace gradledger::conform::torch
