#include "loops/windows.h"

#include <algorithm>
#include <limits>

#include "loops/script.h"

namespace gradledger::loops {
namespace {

using nlohmann::json;

// What a tail that is not stepped comes to shows in the next epoch's first window.
std::vector<Epoch> epochs_of(const LoopSetting& s) {
  if (!s.epochs.empty()) return s.epochs;
  const std::uint32_t whole = s.windows * s.micro_batches;
  if (s.last_window == 0) return {{whole, false}};
  return {{whole + s.last_window, s.leaves_early}, {s.micro_batches, false}};
}

// Updates that are meant differ from windows of one length only where epochs end in shorter ones.
bool marks_updates(const LoopSetting& s) { return s.last_window > 0 || !s.epochs.empty(); }

json engine_window(const Wrapping& w, const Window& window, const std::string& weight, bool marks) {
  json out = json::array(), repeated = json::array();
  engine_micro_batch(repeated, w, weight, false, marks);
  const std::uint32_t held = window.steps ? window.micro_batches - 1 : window.micro_batches;
  if (held > 0) out.push_back({{"repeat", {{"times", held}, {"of", std::move(repeated)}}}});
  if (window.steps) engine_micro_batch(out, w, weight, true, marks);
  return out;
}

// Of DistributedDataParallel and both kinds of FSDP.
json wrapped_window(const Wrapping& w, const Window& window, const std::string& weight, bool marks) {
  json out = json::array();
  if (w.clears_before) out.push_back(zero_grad());
  const std::uint32_t held = window.steps ? window.micro_batches - 1 : window.micro_batches;
  if (held > 0) out.push_back(w.holds_back ? no_sync(json::array({backwards(held, weight)})) : backwards(held, weight));
  if (!window.steps) return out;
  out.push_back(backward(weight));
  if (!w.scale.empty()) out.push_back({{"scale_gradients", {{"by", w.scale}}}});
  out.push_back(step(marks));
  if (!w.clears_before) out.push_back(zero_grad());
  return out;
}

}  // namespace

std::string one_over(std::uint32_t n) { return n == 1 ? "" : "1/" + std::to_string(n); }

std::vector<Window> windows_of(const LoopSetting& s, const Wrapping& w) {
  const std::vector<Epoch> epochs = epochs_of(s);
  std::uint32_t updates_max = std::numeric_limits<std::uint32_t>::max(), counter = 0;
  if (w.ends_with_whole_windows && !s.epochs.empty()) {
    updates_max = 0;
    for (const Epoch& epoch : epochs) updates_max += std::max(1u, epoch.batches / s.micro_batches);
  }
  std::vector<Window> out;
  Window open;
  for (const Epoch& epoch : epochs) {
    if (w.end == EpochEnd::holds) counter = 0;
    for (std::uint32_t b = 0; b < epoch.batches && out.size() < updates_max; ++b) {
      ++open.micro_batches;
      ++counter;
      const bool whole = counter % s.micro_batches == 0;
      const bool ends = w.end == EpochEnd::closes && b + 1 == epoch.batches && !epoch.left;
      if (!whole && !ends) continue;
      if (ends) counter = 0;
      open.steps = true;
      open.tail = !whole;
      out.push_back(open);
      open = {};
    }
  }
  if (open.micro_batches > 0) out.push_back(open);
  return out;
}

// accelerate/utils/deepspeed.py: DeepSpeedEngineWrapper.backward.
void engine_micro_batch(json& events, const Wrapping& w, const std::string& weight, bool last, bool marks) {
  json own = json::array();
  if (w.boundary_by_hand) own.push_back(boundary(last));
  own.push_back(backward(weight, w.engine_scales));
  if (!w.boundary_by_hand || last) own.push_back(step(marks && last));
  if (w.holds_back && !last) events.push_back(no_sync(std::move(own)));
  else events.insert(events.end(), own.begin(), own.end());
}

Expansion expand(const LoopSetting& s, const Wrapping& w, const json& contract, bool counts_tokens) {
  Expansion out;
  out.contract = contract;
  out.counts_tokens = counts_tokens;
  const bool marks = marks_updates(s);
  if (marks) out.contract["window"] = "marked";
  const std::vector<Window> windows = windows_of(s, w);
  for (auto first = windows.begin(); first != windows.end();) {
    const auto other = std::find_if(first, windows.end(), [&](const Window& window) { return window != *first; });
    const std::string weight = first->tail && w.tail_by_itself ? one_over(first->micro_batches) : w.weight;
    json events = s.on_deepspeed() ? engine_window(w, *first, weight, marks) : wrapped_window(w, *first, weight, marks);
    const auto times = other - first;
    // Windows of one kind are one item.
    if (first == windows.begin() || times > 1) out.script.push_back({{"repeat", {{"times", times}, {"of", std::move(events)}}}});
    else out.script.insert(out.script.end(), events.begin(), events.end());
    first = other;
  }
  return out;
}

}  // namespace gradledger::loops
