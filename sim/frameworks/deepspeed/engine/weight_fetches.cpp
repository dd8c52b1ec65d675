#include "sim/frameworks/deepspeed/engine/weight_fetches.h"

#include <algorithm>
#include <limits>

namespace gradledger {
namespace {

// Defaults of stage3_param_persistence_threshold, stage3_prefetch_bucket_size, stage3_max_live_parameters and stage3_max_reuse_distance.
constexpr std::uint64_t persistence_threshold = 100'000, prefetch_bucket_size = 50'000'000, live_max = 1'000'000'000, reuse_distance_max = 1'000'000'000;
constexpr std::int64_t not_yet = std::numeric_limits<std::int64_t>::min();

}  // namespace

WeightFetches::WeightFetches(std::vector<std::uint32_t> owners, std::vector<std::uint64_t> sizes)
    : owners_(std::move(owners)),
      sizes_(std::move(sizes)),
      fetched_for_(owners_.size(), not_yet),
      forwards_(owners_.size() + 1),
      kept_for_backward_(owners_.size()),
      available_(owners_.size()) {}

bool WeightFetches::persists(std::uint32_t p) const { return sizes_[p] <= persistence_threshold; }

// The first forward and its backward are recorded, and what they were is expected from then on.
void WeightFetches::begin_forward() {
  if (mode_ == Mode::record) mode_ = Mode::complete;
  else if (mode_ == Mode::invalid) mode_ = Mode::record;
  queue_.clear();
  for (std::size_t i = 0; mode_ == Mode::complete && i < order_.size(); ++i)
    if (order_[i] != root()) queue_.emplace_back(owners_[order_[i]], static_cast<std::int64_t>(i));
  std::fill(fetched_for_.begin(), fetched_for_.end(), not_yet);
  step_ = 0;
  available_numel_ = 0;
  alike_ = true;
}

void WeightFetches::invalidate() {
  mode_ = Mode::invalid;
  order_.clear();
  queue_.clear();
  std::fill(fetched_for_.begin(), fetched_for_.end(), not_yet);
}

std::vector<std::uint32_t> WeightFetches::forward_of_root() {
  ++forwards_[root()];
  return before(root());
}

std::vector<std::uint32_t> WeightFetches::forward(std::uint32_t module) {
  std::vector<std::uint32_t> out = before(module);
  after(module);
  ++forwards_[module];
  kept_for_backward_[module] = true;
  return out;
}

std::vector<std::uint32_t> WeightFetches::backward_of_root() { return before_backward(root()); }

std::vector<std::uint32_t> WeightFetches::before_backward(std::uint32_t module) {
  if (forwards_[module] == 0) return {};
  --forwards_[module];
  return before(module);
}

void WeightFetches::after_backward(std::uint32_t module) {
  if (kept_for_backward_[module]) after(module);
  kept_for_backward_[module] = false;
}

std::vector<std::uint32_t> WeightFetches::before(std::uint32_t module) {
  std::vector<std::uint32_t> out;
  const auto at = static_cast<std::size_t>(step_);
  if (mode_ == Mode::complete && (at >= order_.size() || order_[at] != module)) invalidate();
  if (mode_ == Mode::record) order_.push_back(module);
  if (module != root()) fetch(owners_[module], out);
  if (mode_ == Mode::complete) prefetch(module, out);
  ++step_;
  return out;
}

void WeightFetches::fetch(std::uint32_t p, std::vector<std::uint32_t>& out) {
  if (available_[p]) return;
  available_[p] = true;
  available_numel_ += sizes_[p];
  out.push_back(p);
}

// What the modules after this one need, as far as the recording says.
void WeightFetches::prefetch(std::uint32_t module, std::vector<std::uint32_t>& out) {
  const auto take = [&] {
    const Traced next = queue_.front();
    queue_.pop_front();
    fetched_for_[next.first] = std::max(fetched_for_[next.first], next.second);
    return next.first;
  };
  if (module != root() && fetched_for_[owners_[module]] < step_ && !queue_.empty()) take();
  const std::uint64_t most = std::min(live_max - std::min(live_max, available_numel_), prefetch_bucket_size);
  for (std::uint64_t numel = 0; !queue_.empty() && numel < most;) {
    const std::uint32_t p = take();
    if (!available_[p]) numel += sizes_[p];
    fetch(p, out);
  }
}

void WeightFetches::after(std::uint32_t module) {
  // Without a whole recording everything goes, whatever is to persist.
  if (mode_ == Mode::complete && keeps(owners_[module])) return;
  release(owners_[module]);
}

bool WeightFetches::keeps(std::uint32_t p) const {
  if (persists(p) || fetched_for_[p] > step_) return true;
  std::uint64_t passed = 0;
  for (auto at = static_cast<std::size_t>(step_); at < order_.size() && passed < reuse_distance_max; ++at) {
    if (order_[at] == root()) continue;
    if (owners_[order_[at]] == p) return true;
    passed += sizes_[owners_[order_[at]]];
  }
  return false;
}

void WeightFetches::release(std::uint32_t p) {
  if (!available_[p]) return;
  available_[p] = false;
  available_numel_ -= std::min(available_numel_, sizes_[p]);
}

void WeightFetches::begin_step() {
  for (std::uint32_t p = 0; p < available_.size(); ++p) release(p);
}

std::vector<std::uint32_t> WeightFetches::end_step() {
  std::vector<std::uint32_t> out;
  for (std::uint32_t p = 0; p < available_.size(); ++p) {
    if (owners_[p] != p || sizes_[p] == 0 || !persists(p) || available_[p]) continue;
    available_[p] = true;
    out.push_back(p);
  }
  return out;
}

void WeightFetches::fold(StateFold& f) const {
  f.number(static_cast<std::uint64_t>(mode_));
  f.flag(alike_);
  f.number(order_.size());
  for (const std::uint32_t module : order_) f.number(module);
  f.number(queue_.size());
  for (const std::uint32_t each : forwards_) f.number(each);
  f.flags(kept_for_backward_);
  f.flags(available_);
}

}  // namespace gradledger
