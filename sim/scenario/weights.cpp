#include "sim/scenario/weights.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "sim/base/contract.h"

namespace gradledger {
namespace {

using Problem = std::optional<InputError>;

class Scale {
 public:
  Scale(const Workload& workload, const std::vector<const ScriptItem*>& items, const std::vector<const ScriptItem*>& touches, Timeline& timeline)
      : workload_(workload), items_(items), touches_(touches), timeline_(timeline), contract_(timeline.contract), stated_(timeline.contract.stated) {}

  Problem run() {
    expects(timeline_.windows_in_order(), "a backward goes to a window before that of an earlier one");
    timeline_.two_layers = contract_.own_weights;
    if (Problem problem = check_contract()) return problem;
    if (Problem problem = count()) return problem;
    for (const Backward& b : timeline_.backwards)
      if (Problem problem = check_shared(b)) return problem;
    for (std::uint32_t b = 0; b < timeline_.backwards.size(); ++b)
      if (Problem problem = weigh_backward(b)) return problem;
    for (std::size_t i = 0; i < touches_.size(); ++i)
      if (touches_[i]->kind == ScriptKind::scale_gradients)
        if (Problem problem = weigh_scaling(*touches_[i], timeline_.events[timeline_.touched[i]])) return problem;
    return std::nullopt;
  }

 private:
  bool multiplies() const {
    return std::any_of(items_.begin(), items_.end(), [](const ScriptItem* item) { return !item->weight.empty(); }) ||
           std::any_of(touches_.begin(), touches_.end(), [](const ScriptItem* item) { return item->kind == ScriptKind::scale_gradients; });
  }
  bool counts_tokens() const { return stated_.normaliser == Normaliser::tokens || stated_.normaliser == Normaliser::tokens_of_rank; }

  std::string where(const Event& event, const char* key) const { return timeline_.pointers[event.item] + key; }

  Problem check_group(const std::string& name, const char* at) const {
    if (name == "none" || contract_.groups.contains(name)) return std::nullopt;
    return InputError{at, "is \"" + name + "\", which is no group; expected one of " + contract_.groups.names()};
  }

  Problem check_contract() const {
    if (Problem problem = check_group(stated_.average_over, "/contract/average_over")) return problem;
    if (stated_.clip)
      if (Problem problem = check_group(stated_.clip->norm_over, "/contract/clip/norm_over")) return problem;
    if (multiplies() && stated_.normaliser == Normaliser::framework)
      return InputError{"/contract",
                        "does not say what a contribution is due to weigh, and the script multiplies losses or gradients itself; expected \"divide_by\": a number, "
                        "\"window\", \"tokens\" or \"tokens_of_rank\""};
    if (stated_.average_over == "none" && (stated_.normaliser == Normaliser::window || stated_.normaliser == Normaliser::tokens))
      return InputError{"/contract/average_over", "is \"none\", but \"divide_by\" counts the window of all ranks; expected \"world\" or a group"};
    if (counts_tokens() && !workload_.tokens.stated()) return InputError{"/contract/divide_by", "counts tokens, and the scenario states none; expected \"tokens\" beside it"};
    if (stated_.window == Window::marked && !timeline_.planted.empty())
      return InputError{"/contract/window", "is \"marked\", and the script plants an overflow, whose window the framework decides; expected one of the two"};
    return std::nullopt;
  }

  // Tokens and micro-batches of each window.
  Problem count() {
    counts_.assign(timeline_.steps, {std::vector<std::uint64_t>(workload_.world_size), std::vector<std::uint64_t>(workload_.world_size)});
    for (const Backward& b : timeline_.backwards) {
      for (std::uint32_t r = 0; r < workload_.world_size; ++r) {
        if (b.micro_batch[r] == no_contribution) continue;
        ++counts_[b.step].micro_batches[r];
        if (!workload_.tokens.stated()) continue;
        const auto tokens = workload_.tokens.of(b.step, r, b.micro_batch[r]);
        if (!tokens)
          return InputError{"/tokens", "end before micro-batch " + std::to_string(b.micro_batch[r]) + " of rank " + std::to_string(r) + " in window " + std::to_string(b.step) +
                                           "; expected an entry for each micro-batch that the script runs"};
        counts_[b.step].tokens[r] += *tokens;
        if (const auto& by = contract_.token_division; by && by->of_window && by->counts[r]) documented_tokens_[{b.documented, by->set[r]}] += *tokens;
      }
    }
    return std::nullopt;
  }

  // Ranks that compute a gradient alike run the same micro-batch, in one event.
  Problem check_shared(const Backward& b) const {
    for (const GradientShare& share : contract_.shares) {
      for (std::uint32_t r = 0; share.copies && r < workload_.world_size; ++r) {
        const std::uint32_t first = share.first[r];
        const std::string two = "rank " + std::to_string(first) + " and rank " + std::to_string(r) + ", which have the same micro-batches of one model";
        if ((b.micro_batch[r] == no_contribution) != (b.micro_batch[first] == no_contribution))
          return InputError{where(timeline_.events[b.event], "/backward"), "runs on one alone of " + two + "; expected both in one event"};
        if (b.micro_batch[r] != no_contribution && tokens_of(b, r) != tokens_of(b, first))
          return InputError{"/tokens",
                            "are " + std::to_string(tokens_of(b, first)) + " and " + std::to_string(tokens_of(b, r)) + " for a micro-batch of " + two + "; expected one number"};
      }
    }
    return std::nullopt;
  }

  std::uint64_t tokens_of(const Backward& b, std::uint32_t rank) const { return workload_.tokens.stated() ? *workload_.tokens.of(b.step, rank, b.micro_batch[rank]) : 0; }

  // One formula for all ranks or one each, and in it one for all micro-batches of the item or one each.
  const Formula* formula_of(const ScriptItem& item, std::uint32_t rank, std::uint32_t number) const {
    if (item.weight.empty()) return nullptr;
    const std::vector<Formula>& row = item.weight[item.weight.size() == 1 ? 0 : rank];
    return &row[row.size() == 1 ? 0 : number];
  }

  Problem weigh_backward(std::uint32_t number) {
    Backward& b = timeline_.backwards[number];
    const ScriptItem& item = *items_[number];
    const Event& event = timeline_.events[b.event];
    in_item_ = number > 0 && items_[number - 1] == &item && timeline_.events[timeline_.backwards[number - 1].event].item == event.item ? (in_item_ + 1) % item.micro_batches : 0;
    b.weight.assign(workload_.world_size, Rational(0));
    b.due = b.weight;
    const bool divided = !timeline_.two_layers || item.scale_wrt_gas;
    for (std::uint32_t r = 0; r < workload_.world_size; ++r) {
      if (b.micro_batch[r] == no_contribution) continue;
      Rational loop(1);
      if (const Formula* formula = formula_of(item, r, in_item_)) {
        if (Problem problem = check_formula(*formula, where(event, "/backward/weight"))) return problem;
        auto value = formula->evaluate(contract_.groups, counts_[b.step], r, tokens_of(b, r), where(event, "/backward/weight"));
        if (!value) return value.error();
        loop = *value;
        b.loss_factor.resize(workload_.world_size, 1);
        b.loss_factor[r] = value_of(loop);
      }
      auto own = divided ? checked_product(loop, Rational(1) / contract_.divisor) : loop;
      if (own && contract_.token_division) own = divided_by_tokens(*contract_.token_division, b, r, *own);
      const auto averaged = own ? checked_product(*own, Rational(1) / contract_.average_divisor) : std::nullopt;
      if (!averaged) return InputError{where(event, "/backward/weight"), "makes a weight of more than 62 bits; expected smaller numbers"};
      b.weight[r] = *own;
      if (!timeline_.two_layers) {
        b.due[r] = *averaged;
        continue;
      }
      auto due = due_of(b, r, *averaged);
      if (!due) return due.error();
      b.due[r] = *due;
    }
    return std::nullopt;
  }

  // In the own sum already: what it is before the end of the window nobody documents.
  std::optional<Rational> divided_by_tokens(const TokenDivision& by, const Backward& b, std::uint32_t rank, const Rational& own) const {
    if (!by.of_window) return checked_product(own, Rational(1, static_cast<std::int64_t>(std::max<std::uint64_t>(tokens_of(b, rank), 1))));
    const auto sum = checked_product(own, contract_.average_divisor);
    const auto tokens = documented_tokens_.find({b.documented, by.set[rank]});
    if (!sum || tokens == documented_tokens_.end() || tokens->second == 0) return sum;
    return checked_product(*sum, Rational(1, static_cast<std::int64_t>(tokens->second)));
  }

  Problem check_formula(const Formula& formula, const std::string& at) const {
    for (const Factor& factor : formula.factors())
      if (!factor.group.empty() && !contract_.groups.contains(factor.group))
        return InputError{at, "names \"" + factor.group + "\", which is no group; expected one of " + contract_.groups.names()};
    if (!formula.counts_tokens() || workload_.tokens.stated()) return std::nullopt;
    return InputError{at, "counts tokens, and the scenario states none; expected \"tokens\" beside the script"};
  }

  // Of one contribution in the gradient that the ranks which average with it apply.
  Result<Rational> due_of(const Backward& b, std::uint32_t rank, const Rational& documented) const {
    const WindowCounts& window = counts_[b.step];
    std::uint64_t tokens = 0, micro_batches = 0, ranks = 0;
    for (std::uint32_t r = 0; r < workload_.world_size; ++r) {
      if (!contract_.average_together(rank, r)) continue;
      ++ranks;
      tokens += window.tokens[r];
      micro_batches += window.micro_batches[r];
    }
    const Rational average = stated_.average_over == "none"    ? Rational(1)
                             : contract_.average_group.empty() ? Rational(1) / contract_.average_divisor
                                                               : Rational(1, static_cast<std::int64_t>(ranks));
    const auto own = static_cast<std::int64_t>(tokens_of(b, rank));
    std::optional<Rational> out;
    switch (stated_.normaliser) {
      case Normaliser::framework: out = documented * contract_.average_divisor * average; break;
      case Normaliser::number: out = checked_product(Rational(1) / stated_.divide_by, average); break;
      case Normaliser::window: out = Rational(1, static_cast<std::int64_t>(micro_batches)); break;
      case Normaliser::tokens:
        if (tokens == 0) return InputError{"/tokens", "are all 0 in window " + std::to_string(b.step) + ", which \"divide_by\" divides by; expected a token at least"};
        out = Rational(own, static_cast<std::int64_t>(tokens));
        break;
      case Normaliser::tokens_of_rank:
        if (window.tokens[rank] == 0)
          return InputError{"/tokens",
                            "are all 0 on rank " + std::to_string(rank) + " in window " + std::to_string(b.step) + ", which \"divide_by\" divides by; expected a token at least"};
        out = checked_product(Rational(own, static_cast<std::int64_t>(window.tokens[rank])), average);
        break;
    }
    if (!out) return InputError{"/contract/divide_by", "makes a weight of more than 62 bits; expected smaller numbers"};
    return *out;
  }

  Problem weigh_scaling(const ScriptItem& item, Event& event) {
    const std::string at = where(event, "/scale_gradients/by");
    if (item.by.of_a_micro_batch()) return InputError{at, "counts the tokens of one micro-batch, and a gradient is of all of them; expected tokens_of_rank or tokens_of_window"};
    if (Problem problem = check_formula(item.by, at)) return problem;
    std::vector<double>& by = event.as<events::ScaleGradients>()->by;
    by.assign(workload_.world_size, 1);
    for (std::uint32_t r = 0; r < workload_.world_size; ++r) {
      if (!event.runs_on(r)) continue;
      const auto value = item.by.evaluate(contract_.groups, counts_[event.step], r, 0, at);
      if (!value) return value.error();
      by[r] = value_of(*value);
    }
    return std::nullopt;
  }

  const Workload& workload_;
  const std::vector<const ScriptItem*>& items_;
  const std::vector<const ScriptItem*>& touches_;
  Timeline& timeline_;
  const Contract& contract_;
  const StatedContract& stated_;
  std::vector<WindowCounts> counts_;                                                    // by window
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> documented_tokens_;  // by documented window, and set of TokenDivision
  std::uint32_t in_item_ = 0;                                                           // which micro-batch of its item the backward is
};

}  // namespace

Problem weigh(const Workload& workload, const std::vector<const ScriptItem*>& items, const std::vector<const ScriptItem*>& touches, Timeline& timeline) {
  return Scale(workload, items, touches, timeline).run();
}

}  // namespace gradledger
