#include "tools/conformance/script.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "sim/base/limits.h"
#include "sim/frameworks/deepspeed/contract.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/scenario/timeline.h"

namespace gradledger::conform {
namespace {

// Operations become events one for one, blocks become nested items.
class ScriptBuilder {
 public:
  ScriptBuilder(const Scenario& scenario, GivenValues& values)
      : scenario_(scenario), values_(values), recorded_(static_cast<std::uint32_t>(values.size())), boundary_(deepspeed::boundary_rule(deepspeed_config(scenario))) {}

  void add(const Field& op) {
    const std::string& kind = op.at(0).text(limits::name_length_max);
    ScriptItem item;
    if (kind == "fb" || kind == "b") {
      backward(op, kind == "b", item);
    } else if (kind == "f") {
      item.kind = ScriptKind::forward;
      forwards_[op.at(1).count(0, recorded_ - 1)] = next_forward_++;
    } else if (kind == "boundary") {
      item.kind = ScriptKind::set_boundary;
      item.boundary = op.at(1).flag();
      boundary_.set(item.boundary);
    } else if (kind == "step") {
      item.kind = ScriptKind::step;
      if (boundary_.step()) next_forward_ = 0;  // forwards are numbered by window
    } else if (kind == "zero_grad" || kind == "opt_zero_grad") {
      item.kind = kind == "zero_grad" ? ScriptKind::engine_zero_grad : ScriptKind::optimizer_zero_grad;
    } else if (kind == "no_sync" || kind == "coalesce") {
      return open_block(kind == "no_sync" ? ScriptKind::no_sync : ScriptKind::coalesce);
    } else if (kind == "end") {
      return close_block();
    } else {
      return refuse("operation \"" + kind + "\"");
    }
    put(std::move(item));
  }

  Script take() {
    if (block_) refuse("a block that does not end");
    return {std::move(items_), std::move(inexpressible_)};
  }

 private:
  void backward(const Field& op, bool of_forward, ScriptItem& item) {
    item.kind = ScriptKind::backward;
    item.micro_batch = op.at(1).count(0, recorded_ - 1);
    if (of_forward) {
      const auto forward = forwards_.find(*item.micro_batch);
      if (forward == forwards_.end()) return refuse("a backward without its forward");
      item.of = forward->second;
    }
    if (op.json().size() > 2) options(op.at(2), item);
  }

  // A single variant holds what all the options of an operation ask for: first the values, then what is done to them.
  void options(const Field& given, ScriptItem& item) {
    std::vector<std::vector<double>> ranks = values_[*item.micro_batch];
    for (const auto& [option, value] : given.members()) {
      if (option == "use") uses(value, item);
      else if (option == "value") fill(ranks, std::vector<double>(ranks.size(), value.number()));
      else if (option == "values") fill(ranks, value.exactly(ranks.size()));
      else if (option == "scale_wrt_gas") item.scale_wrt_gas = value.flag();
      // inf comes after the values; a graph that is used again shows in the script.
      else if (option != "inf" && option != "retain_graph") refuse("an operation with option \"" + option + "\"");
    }
    if (given.has("inf"))
      for (const Field& rank : given.at("inf").entries(scenario_.world_size)) ranks[rank.count(0, scenario_.world_size - 1)].front() = std::numeric_limits<double>::infinity();
    if (ranks == values_[*item.micro_batch]) return;
    values_.push_back(std::move(ranks));
    item.micro_batch = static_cast<std::uint32_t>(values_.size() - 1);
  }

  static void fill(std::vector<std::vector<double>>& ranks, const std::vector<double>& with) {
    for (std::size_t r = 0; r < ranks.size(); ++r) std::fill(ranks[r].begin(), ranks[r].end(), with[r]);
  }

  // One list for all ranks, or one for each. The script has one for all.
  void uses(const Field& value, ScriptItem& item) {
    std::vector<std::vector<std::uint32_t>> lists;
    if (value.json().is_object()) {
      for (const auto& [rank, list] : value.members()) lists.push_back(parameters(list));
      if (lists.size() != scenario_.world_size)
        value.fail("has lists for " + std::to_string(lists.size()) + " ranks; expected one for each of " + std::to_string(scenario_.world_size));
    } else {
      lists.push_back(parameters(value));
    }
    if (std::any_of(lists.begin(), lists.end(), [&](const auto& list) { return list != lists.front(); }))
      return refuse("a backward that uses different parameters on different ranks");
    if (lists.front().empty()) return refuse("a backward that uses no parameter");
    for (std::uint32_t p : lists.front()) item.uses.push_back(scenario_.parameters[p].name);
  }

  std::vector<std::uint32_t> parameters(const Field& list) const {
    const auto count = static_cast<std::uint32_t>(scenario_.parameters.size());
    std::vector<std::uint32_t> out;
    for (const Field& p : list.entries(count)) out.push_back(p.count(0, count - 1));
    return out;
  }

  void open_block(ScriptKind kind) {
    if (block_) return refuse("nested blocks");
    block_.emplace();
    block_->kind = kind;
  }

  void close_block() {
    if (!block_) return refuse("the end of a block that did not begin");
    ScriptItem done = std::move(*block_);
    block_.reset();
    put(std::move(done));
  }

  void put(ScriptItem item) { (block_ ? block_->items : items_).push_back(std::move(item)); }

  void refuse(std::string why) {
    if (!inexpressible_) inexpressible_ = std::move(why);
  }

  const Scenario& scenario_;
  GivenValues& values_;
  std::uint32_t recorded_;  // micro-batches of the recording; variants come after them
  DocumentedBoundary boundary_;
  std::vector<ScriptItem> items_;
  std::optional<ScriptItem> block_;
  std::map<std::uint32_t, std::uint32_t> forwards_;
  std::uint32_t next_forward_ = 0;
  std::optional<std::string> inexpressible_;
};

}  // namespace

Script make_script(const Field& operations, const Scenario& scenario, GivenValues& values) {
  ScriptBuilder builder(scenario, values);
  for (const Field& op : operations.entries(limits::events_max)) builder.add(op);
  return builder.take();
}

}  // namespace gradledger::conform
