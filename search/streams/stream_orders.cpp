#include "search/streams/stream_orders.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "search/streams/stream_system.h"

namespace gradledger::search {
namespace {

// States by the number of steps behind them. A step never leads back, so a state is complete in its predecessors when its turn comes, and
// only what lies ahead is held.
class Exploration {
 public:
  // variants_max: 0 for any number.
  Exploration(StreamSystem& system, const StreamOrderOptions& options, std::uint32_t variants_max)
      : system_(system), options_(options), variants_max_(variants_max), width_(system.start().size()) {}

  StreamOrders run() {
    arrive(system_.start(), 0, no_index, {});
    bool within = true;
    while (!ahead_.empty() && within) {
      const auto first = ahead_.begin();
      depth_ = first->first;
      const Layer layer = std::move(first->second);
      ahead_.erase(first);
      within = visit(layer);
    }
    if (!within) run_to_the_end();
    out_.every_choice = within;
    out_.complete = within && out_.left_out == 0;
    out_.rank_states = system_.rank_states();
    std::set<std::uint64_t> values, memory;
    for (const Ending& ending : outcomes_) {
      values.insert(ending.outcome.values);
      memory.insert(ending.outcome.memory);
    }
    out_.outcomes = memory.size();
    out_.outcomes_in_values = values.size();
    show_witnesses();
    return std::move(out_);
  }

 private:
  struct Origin {
    std::uint32_t state = no_index;  // number of the state before
    StreamDecision decision;
  };
  // States one after the other, `width_` numbers each.
  struct Layer {
    std::vector<StateId> states;
    std::vector<Origin> origins;
  };
  struct Ending {
    StreamOutcome outcome;
    std::uint32_t state = 0;
  };

  // The state, after all steps that need no choice, awaits its turn.
  void arrive(SystemState state, std::uint64_t depth, std::uint32_t from, StreamDecision decision) {
    if (options_.reduce) depth += system_.settle(state, nullptr);
    Layer& layer = ahead_[depth];
    layer.states.insert(layer.states.end(), state.begin(), state.end());
    layer.origins.push_back({from, decision});
  }

  // Every state of a layer once. False where the limits end the search.
  bool visit(const Layer& layer) {
    for (std::uint32_t at : followed(layer)) {
      if (origins_.size() >= options_.states_max || bytes() > options_.bytes_max || options_.stop()) return false;
      const auto number = static_cast<std::uint32_t>(origins_.size());
      origins_.push_back(layer.origins[at]);
      ++out_.states;
      const auto state = state_at(layer, at);
      follow({state.begin(), state.end()}, number);
    }
    return true;
  }

  std::span<const StateId> state_at(const Layer& layer, std::uint32_t at) const { return std::span(layer.states).subspan(at * width_, width_); }

  // The first of all that are equal; where that is too many, some of those whose streams are as far.
  std::vector<std::uint32_t> followed(const Layer& layer) {
    std::vector<std::uint32_t> order(layer.origins.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const auto compared = std::ranges::mismatch(state_at(layer, a), state_at(layer, b));
      return compared.in1 == state_at(layer, a).end() ? a < b : *compared.in1 < *compared.in2;
    });
    const auto equal = [&](std::uint32_t a, std::uint32_t b) { return std::ranges::equal(state_at(layer, a), state_at(layer, b)); };
    order.erase(std::unique(order.begin(), order.end(), equal), order.end());
    if (variants_max_ == 0 || order.size() <= variants_max_) return order;
    std::map<std::vector<std::uint32_t>, std::vector<std::uint32_t>> alike;
    for (std::uint32_t at : order) alike[system_.progress(state_at(layer, at))].push_back(at);
    order.clear();
    for (const auto& [progress, variants] : alike) {
      const std::size_t kept = std::min<std::size_t>(variants.size(), variants_max_);
      for (std::size_t i = 0; i < kept; ++i) order.push_back(variants[i * variants.size() / kept]);  // evenly, so that they differ in much
      out_.left_out += variants.size() - kept;
    }
    return order;
  }

  void follow(const SystemState& state, std::uint32_t number) {
    const std::vector<StreamDecision> choices = options_.reduce ? system_.persistent_choices(state) : system_.all_choices(state);
    if (choices.empty()) return end(state, number);
    out_.choices_max = std::max<std::uint64_t>(out_.choices_max, choices.size());
    for (const StreamDecision& decision : choices) {
      ++out_.transitions;
      SystemState next = state;
      system_.step(next, decision);
      arrive(std::move(next), depth_ + 1, number, decision);
    }
  }

  void end(const SystemState& state, std::uint32_t number) {
    out_.depth = std::max(out_.depth, depth_);
    if (!system_.finished(state)) out_.deadlock = true;
    else outcomes_.push_back({system_.outcome(state), number});
  }

  // What lies ahead at the limits: some of it is followed by one order each, so that what has differed by now can show.
  void run_to_the_end() {
    constexpr std::size_t followed_max = 16;
    for (auto& [depth, layer] : ahead_) {
      const std::size_t some = std::min(followed_max, layer.origins.size());
      for (std::size_t i = 0; i < some; ++i) {
        const std::size_t at = i * layer.origins.size() / some;
        const auto from = state_at(layer, static_cast<std::uint32_t>(at));
        SystemState state(from.begin(), from.end());
        depth_ = depth;
        origins_.push_back(layer.origins[at]);
        for (std::vector<StreamDecision> choices; !(choices = system_.persistent_choices(state)).empty();) {
          system_.step(state, choices.front());
          origins_.push_back({static_cast<std::uint32_t>(origins_.size() - 1), choices.front()});
          depth_ += 1 + (options_.reduce ? system_.settle(state, nullptr) : 0);
        }
        end(state, static_cast<std::uint32_t>(origins_.size() - 1));
      }
    }
  }

  std::uint64_t bytes() const {
    std::uint64_t sum = system_.bytes() + origins_.capacity() * sizeof(Origin) + outcomes_.capacity() * sizeof(Ending);
    for (const auto& [depth, layer] : ahead_) sum += layer.states.capacity() * sizeof(StateId) + layer.origins.capacity() * sizeof(Origin);
    return sum;
  }

  void show_witnesses() {
    std::set<std::uint64_t> shown;
    for (const bool differ_in_values : {true, false})
      for (const Ending& ending : outcomes_) {
        if (out_.witnesses.size() >= options_.witnesses_max) return;
        const bool is_new = shown.insert(ending.outcome.values).second;
        const bool listed = std::ranges::any_of(out_.witnesses, [&](const StreamWitness& w) { return w.outcome == ending.outcome; });
        if (is_new == differ_in_values && !listed) out_.witnesses.push_back({ending.outcome, order_to(ending.state)});
      }
  }

  std::vector<StreamDecision> order_to(std::uint32_t number) {
    std::vector<StreamDecision> chosen;
    for (std::uint32_t at = number; origins_[at].state != no_index; at = origins_[at].state) chosen.push_back(origins_[at].decision);
    std::vector<StreamDecision> all;
    SystemState state = system_.start();
    const auto settle = [&] {
      if (options_.reduce) system_.settle(state, &all);
    };
    settle();
    for (auto decision = chosen.rbegin(); decision != chosen.rend(); ++decision) {
      system_.step(state, *decision);
      all.push_back(*decision);
      settle();
    }
    return all;
  }

  StreamSystem& system_;
  const StreamOrderOptions& options_;
  const std::uint32_t variants_max_;
  const std::size_t width_;
  std::map<std::uint64_t, Layer> ahead_;  // by depth
  std::uint64_t depth_ = 0;
  std::vector<Origin> origins_;  // by state
  std::vector<Ending> outcomes_;
  StreamOrders out_;
};

StreamAgreement agreement_of(const StreamOrders& orders) {
  if (orders.outcomes > 1) return orders.races.empty() ? StreamAgreement::difference_without_race : StreamAgreement::agree;
  if (!orders.complete || orders.outcomes == 0) return StreamAgreement::unknown;
  return orders.races.empty() ? StreamAgreement::agree : StreamAgreement::race_without_difference;
}

}  // namespace

std::string_view name_of(StreamAgreement agreement) {
  switch (agreement) {
    case StreamAgreement::agree: return "agree";
    case StreamAgreement::race_without_difference: return "race without difference";
    case StreamAgreement::difference_without_race: return "difference without race";
    case StreamAgreement::unknown: return "unknown";
  }
  return "";
}

StreamOrders explore_streams(const Scenario& scenario, const Timeline& timeline, const StreamOrderOptions& options) {
  StreamOrders out;
  for (std::uint32_t variants_max = 0;;) {
    StreamSystem system(scenario, timeline, options);
    out = {};
    if (system.mismatch()) out.mismatch = true;
    else out = Exploration(system, options, variants_max).run();
    out.races = system.races();
    out.receives_pass = system.receives();
    if (out.every_choice || out.mismatch) break;
    variants_max = variants_max == 0 ? options.variants_max : variants_max / 4;
    if (variants_max < 2) break;  // one alone cannot differ
  }
  out.agreement = agreement_of(out);
  return out;
}

std::optional<StreamEnd> replay_streams(const Scenario& scenario, const Timeline& timeline, const StreamOrderOptions& options, std::span<const StreamDecision> decisions) {
  StreamSystem system(scenario, timeline, options);
  if (system.mismatch()) return std::nullopt;
  SystemState state = system.start();
  for (const StreamDecision& decision : decisions) {
    if (decision.rank >= state.size() || !system.enabled(state, decision)) return std::nullopt;
    system.step(state, decision);
  }
  if (!system.finished(state)) return std::nullopt;
  return StreamEnd{system.outcome(state), system.memory(state)};
}

}  // namespace gradledger::search
