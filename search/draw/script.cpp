#include "search/draw/script.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "sim/frameworks/search_space.h"

namespace gradledger::search {
namespace {

ScriptItem boundary(bool value) {
  ScriptItem item = item_of(ScriptKind::set_boundary);
  item.boundary = value;
  return item;
}

// By the format of files.
bool may_name_ranks(ScriptKind kind) { return kind != ScriptKind::set_gradient && kind != ScriptKind::no_sync && kind != ScriptKind::coalesce; }

// How the case tells windows apart.
enum class Windows { counted, by_calls, bare, unmanaged };

class Script {
 public:
  Script(const Profile& profile, Draws& draws, const Swarm& swarm, Scenario& out)
      : draws_(draws), swarm_(swarm), out_(out), space_(search_space_of(out)), calls_(space_.calls(out)), as_documented_(profile.as_documented), events_left_(profile.events_max) {}

  void draw() {
    kind_ = windows();
    micro_batches_ = draws_.one_in(10) ? 3 : draws_.of({1u, 2u, 2u, 4u});
    if (kind_ == Windows::counted) space_.tuning().count_windows(out_, micro_batches_);
    else if (kind_ == Windows::by_calls && draws_.one_in(4)) space_.tuning().count_windows(out_, draws_.of({2u, 4u}));
    const bool free = !as_documented_ && draws_.one_in(2);
    const std::uint32_t count = takes(Feature::windows) ? draws_.between(2, 4) : 1 + draws_.below(2);
    for (std::uint32_t w = 0; w < count && (w == 0 || events_left_ > 4); ++w) free ? free_window() : window();
    if (out_.script.empty() || out_.script.back().kind != ScriptKind::step) add(out_.script, item_of(ScriptKind::step));
  }

 private:
  bool takes(Feature feature) const { return swarm_.takes(feature, draws_); }
  bool strays(Feature feature) const { return !as_documented_ && swarm_.takes(feature, draws_) && draws_.one_in(2); }

  Windows windows() {
    if (!calls_->manages_windows()) return Windows::unmanaged;
    const std::uint32_t counted = swarm_.weight(Feature::counted_windows) + 1, calls = swarm_.weight(Feature::boundary_calls) + 1;
    const std::uint32_t bare = as_documented_ ? 0 : swarm_.weight(Feature::bare_windows);
    const std::uint32_t pick = draws_.below(counted + calls + bare);
    return pick < counted ? Windows::counted : pick < counted + calls ? Windows::by_calls : Windows::bare;
  }

  // ---- one event, if the framework takes it ----------------------------------------------------------------------------------------

  bool legal(EventKind kind, bool direct = false) const { return calls_->takes(kind, in_block_, direct); }

  void add(std::vector<ScriptItem>& into, ScriptItem item) {
    if (events_left_ > 0) --events_left_;
    draw_ranks(item);
    into.push_back(std::move(item));
  }

  void draw_ranks(ScriptItem& item) {
    if (!as_documented_ && out_.world_size > 1 && may_name_ranks(item.kind) && swarm_.takes(Feature::some_ranks, draws_) && draws_.one_in(24))
      item.ranks = {draws_.below(out_.world_size)};
  }

  // On a copy of the draws: what a seed means for the rest stays.
  void enter_on_a_rank(ScriptItem& item, Draws aside) const {
    if (!as_documented_ && out_.world_size > 1 && item.kind == ScriptKind::no_sync && swarm_.takes(Feature::some_ranks, aside) && aside.one_in(12))
      item.ranks = {aside.below(out_.world_size)};
  }

  std::string trainable() {
    std::vector<std::uint32_t> with_gradient;
    for (std::uint32_t p = 0; p < out_.parameters.size(); ++p)
      if (out_.parameters[p].has_gradient()) with_gradient.push_back(p);
    return out_.parameters[with_gradient[draws_.below(static_cast<std::uint32_t>(with_gradient.size()))]].name;
  }

  void backward(std::vector<ScriptItem>& into) {
    ScriptItem item = item_of(ScriptKind::backward);
    if (takes(Feature::own_forwards)) {
      if (legal(EventKind::forward)) add(into, item_of(ScriptKind::forward));
      const std::vector<std::uint32_t> ranks = into.back().ranks;
      item.of = forwards_++;
      into.push_back(decorated(std::move(item)));
      into.back().ranks = ranks;  // where the forward ran
      return;
    }
    if (strays(Feature::own_forwards) && forwards_ > 0) item.of = draws_.below(forwards_);
    add(into, decorated(std::move(item)));
  }

  ScriptItem decorated(ScriptItem item) {
    if (takes(Feature::direct) && legal(EventKind::backward, true)) item.direct = true;
    if (takes(Feature::phases)) item.phases = draws_.between(2, 3);
    if (takes(Feature::uses)) item.uses = {trainable()};
    if (takes(Feature::order)) {
      const std::uint32_t rank = draws_.below(out_.world_size);
      item.order[rank] = {trainable()};
    }
    if (strays(Feature::unscaled)) item.scale_wrt_gas = false;
    return item;
  }

  // ---- a window as the documentation has it, with detours ---------------------------------------------------------------------------

  void window() {
    if (window_of_the_framework()) return;
    const bool counted = kind_ == Windows::counted, calls = kind_ == Windows::by_calls;
    const bool all_in_block = !counted && takes(Feature::blocks) && legal(EventKind::coalesce_enter);
    if (all_in_block) return coalesced_window();
    forwards_ = 0;
    if (calls) add(out_.script, boundary(micro_batches_ == 1));
    for (std::uint32_t m = 0; m < micro_batches_; ++m) {
      const bool last = m + 1 == micro_batches_;
      if (calls && last && m > 0) add(out_.script, boundary(true));
      if (!last && takes(Feature::blocks) && legal(EventKind::no_sync_enter)) {
        ScriptItem block = item_of(ScriptKind::no_sync);
        in_block(block, [&] { backward(block.items); });
        add(out_.script, std::move(block));
      } else {
        backward(out_.script);
      }
      detour(out_.script);
      if (counted && !last) add(out_.script, item_of(ScriptKind::step));
    }
    before_step();
    add(out_.script, item_of(ScriptKind::step));
    if (takes(Feature::zero_grads)) add(out_.script, item_of(draws_.one_in(2) ? ScriptKind::engine_zero_grad : ScriptKind::optimizer_zero_grad));
  }

  bool window_of_the_framework() {
    std::vector<ScriptItem>& script = out_.script;
    const std::size_t before = script.size();
    if (!space_.draw_window({.micro_batches = micro_batches_, .first = before == 0, .as_documented = as_documented_}, draws_, swarm_, out_)) return false;
    for (std::size_t i = before; i < script.size(); ++i) {
      events_left_ -= std::min<std::uint32_t>(events_left_, 1 + static_cast<std::uint32_t>(script[i].items.size()));
      draw_ranks(script[i]);
      enter_on_a_rank(script[i], draws_);
    }
    return true;
  }

  void coalesced_window() {
    forwards_ = 0;
    ScriptItem block = item_of(ScriptKind::coalesce);
    in_block(block, [&] {
      for (std::uint32_t m = 0; m < micro_batches_; ++m) backward(block.items);
    });
    if (kind_ == Windows::by_calls) add(out_.script, boundary(true));
    add(out_.script, std::move(block));
    before_step();
    add(out_.script, item_of(ScriptKind::step));
  }

  template <class Body>
  void in_block(ScriptItem&, Body&& body) {
    in_block_ = true;
    body();
    in_block_ = false;
  }

  // What belongs between the last backward and the step.
  void before_step() {
    if (takes(Feature::set_gradient)) {
      ScriptItem item = item_of(ScriptKind::set_gradient);
      item.uses = {trainable()};
      item.factor = draws_.of({0.5, 2.0, 3.0});
      item.local = calls_->sets_own_partitions() && draws_.one_in(3);
      if (calls_->sets_gradients()) add(out_.script, std::move(item));
    }
    if (takes(Feature::overflow) && out_.model_dtype != Dtype::float32) overflow();
  }

  void overflow() {
    ScriptItem item = item_of(ScriptKind::overflow);
    item.micro_batch = draws_.below(micro_batches_);
    item.planted = draws_.of({PlantedValue::infinity, PlantedValue::minus_infinity, PlantedValue::not_a_number});
    item.ranks = {draws_.below(out_.world_size)};
    out_.script.push_back(std::move(item));
  }

  // Something that a user does not mean to do here, or does not know to be wrong.
  void detour(std::vector<ScriptItem>& into) {
    if (strays(Feature::zero_grads)) add(into, item_of(draws_.one_in(2) ? ScriptKind::engine_zero_grad : ScriptKind::optimizer_zero_grad));
    if (strays(Feature::double_steps)) add(into, item_of(ScriptKind::step));
    if (strays(Feature::boundary_calls) && legal(EventKind::set_boundary)) add(into, boundary(draws_.one_in(2)));
    if (strays(Feature::raises) && draws_.one_in(3)) {
      ScriptItem item = item_of(ScriptKind::raise);
      item.caught = true;
      add(into, std::move(item));
    }
  }

  // ---- any legal event next ----------------------------------------------------------------------------------------------------------

  void free_window() {
    forwards_ = 0;
    const std::uint32_t length = draws_.between(2, 6);
    for (std::uint32_t i = 0; i < length; ++i) free_event();
    add(out_.script, item_of(ScriptKind::step));
  }

  void free_event() {
    std::vector<ScriptItem>& into = out_.script;
    const std::uint32_t calls = swarm_.weight(Feature::boundary_calls), zero = swarm_.weight(Feature::zero_grads), blocks = swarm_.weight(Feature::blocks),
                        steps = 1 + swarm_.weight(Feature::double_steps) / 4, raises = swarm_.weight(Feature::raises) / 8;
    const std::vector<OwnLetter> letters = space_.letters(out_);
    const auto own = static_cast<std::uint32_t>(letters.size());
    std::uint32_t pick = draws_.below(12 + calls + zero + blocks + steps + own + raises);
    const auto less = [&](std::uint32_t weight) {
      if (pick < weight) return true;
      pick -= weight;
      return false;
    };
    if (less(12)) return backward(into);
    if (less(calls)) return legal(EventKind::set_boundary) ? add(into, boundary(draws_.one_in(2))) : backward(into);
    if (less(zero)) return add(into, item_of(draws_.one_in(2) ? ScriptKind::engine_zero_grad : ScriptKind::optimizer_zero_grad));
    if (less(blocks)) return free_block();
    if (less(steps)) return add(into, item_of(ScriptKind::step));
    if (less(own)) return call(letters[draws_.below(own)].item);
    ScriptItem item = item_of(ScriptKind::raise);
    item.caught = true;
    add(into, std::move(item));
  }

  // One that runs backwards itself is what a framework documents of it, with its events in line.
  void call(const ScriptItem& item) {
    if (item.kind != ScriptKind::repeat) return add(out_.script, item);
    events_left_ -= std::min(events_left_, static_cast<std::uint32_t>(item.items.size()));
    out_.script.insert(out_.script.end(), item.items.begin(), item.items.end());
  }

  void free_block() {
    const bool coalesces = legal(EventKind::coalesce_enter) && (draws_.one_in(2) || !legal(EventKind::no_sync_enter));
    if (!coalesces && !legal(EventKind::no_sync_enter)) return backward(out_.script);
    ScriptItem block = item_of(coalesces ? ScriptKind::coalesce : ScriptKind::no_sync);
    in_block(block, [&] {
      for (std::uint32_t i = draws_.between(1, 3); i > 0; --i) {
        backward(block.items);
        detour_in_block(block.items);
      }
    });
    add(out_.script, std::move(block));
  }

  void detour_in_block(std::vector<ScriptItem>& into) {
    if (strays(Feature::raises) && draws_.one_in(2)) {
      ScriptItem item = item_of(ScriptKind::raise);
      item.caught = true;
      add(into, std::move(item));
    }
    if (strays(Feature::boundary_calls) && legal(EventKind::set_boundary)) add(into, boundary(draws_.one_in(2)));
  }

  Draws& draws_;
  const Swarm& swarm_;
  Scenario& out_;
  const SearchSpace& space_;
  const std::unique_ptr<Calls> calls_;
  const bool as_documented_;
  bool in_block_ = false;
  Windows kind_ = Windows::counted;
  std::uint32_t micro_batches_ = 1, forwards_ = 0, events_left_;
};

}  // namespace

void draw_script(const Profile& profile, Draws& draws, const Swarm& swarm, Scenario& out) { Script(profile, draws, swarm, out).draw(); }

}  // namespace gradledger::search
