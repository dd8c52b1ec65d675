#include "library/moves.h"

#include <algorithm>

namespace gradledger::library {

Rules rules_of(const StatedContract& contract, bool zero_grad_is_stated, const std::vector<std::string>& events, const std::vector<std::uint32_t>& micro_batches) {
  const auto has = [&](const char* event) { return std::find(events.begin(), events.end(), event) != events.end(); };
  Rules out;
  out.marked = contract.window == Window::marked;
  out.zero_grad = has("zero_grad");
  out.no_sync = has("enter_no_sync");
  out.boundary = has("set_boundary");
  out.zero_grad_anywhere = zero_grad_is_stated && !out.marked && !out.boundary;
  out.discards = contract.zero_grad_discards;
  out.micro_batches.insert(micro_batches.begin(), micro_batches.end());
  const bool counted = contract.normaliser == Normaliser::number && contract.divide_by.denominator() == 1 && contract.divide_by > 1;
  if (out.micro_batches.empty() && counted) out.micro_batches = {static_cast<std::uint32_t>(contract.divide_by.numerator())};
  if (out.micro_batches.empty()) out.micro_batches = {1, 2, 3, 4};
  return out;
}

bool Stand::take(Move move, const Rules& rules) {
  const bool taken = [&] {
    switch (move) {
      case Move::backward: return take_backward(true, rules);
      case Move::backward_in_no_sync: return rules.no_sync && take_backward(false, rules);
      case Move::boundary_false: return take_boundary(false, rules);
      case Move::boundary_true: return take_boundary(true, rules);
      case Move::step: return take_step(!rules.marked, rules);
      case Move::update: return rules.marked && take_step(true, rules);
      case Move::zero_grad: return take_zero_grad(rules);
    }
    return false;
  }();
  if (taken) last_ = move;
  return taken;
}

// A micro-batch in no_sync cannot be the last of its window; with a boundary call, one is the last where the call says so.
bool Stand::take_backward(bool last_possible, const Rules& rules) {
  const std::uint32_t now = micro_batches_ + 1;
  if (owes_step_ || now > rules.most() || (!last_possible && now == rules.most())) return false;
  if (rules.boundary) {
    const bool last = boundary_.value_or(false);
    if (!boundary_ || (last && (!last_possible || last_ == Move::backward || !rules.micro_batches.contains(now))) || (!last && now == rules.most())) return false;
  }
  micro_batches_ = now;
  synced_ = last_possible;
  owes_step_ = rules.marked;
  return true;
}

bool Stand::take_step(bool updates, const Rules& rules) {
  if (micro_batches_ == 0 || (rules.marked && !owes_step_)) return false;
  const bool at_boundary = !rules.boundary || (*boundary_ && synced_);
  if (!updates) {
    if (micro_batches_ == rules.most() || (rules.boundary && *boundary_)) return false;
  } else {
    if (!rules.micro_batches.contains(micro_batches_) || !synced_ || !at_boundary) return false;
    if (rules.boundary && last_ != Move::backward) return false;
    micro_batches_ = 0;
    stepped_ = true;
  }
  owes_step_ = false;
  return true;
}

bool Stand::take_boundary(bool value, const Rules& rules) {
  if (!rules.boundary || owes_step_ || boundary_ == value || last_ == Move::boundary_false || last_ == Move::boundary_true) return false;
  if (boundary_ == true && micro_batches_ > 0) return false;  // behind the last backward comes the step
  if (value ? !rules.micro_batches.contains(micro_batches_ + 1) : micro_batches_ + 1 >= rules.most()) return false;
  boundary_ = value;
  return true;
}

bool Stand::take_zero_grad(const Rules& rules) {
  if (!rules.zero_grad || owes_step_ || last_ == Move::zero_grad) return false;
  if (micro_batches_ == 0) return stepped_ || rules.zero_grad_anywhere;
  if (!rules.zero_grad_anywhere) return false;
  if (rules.discards) micro_batches_ = 0;
  if (rules.discards) synced_ = true;
  return true;
}

namespace {

ScriptItem item_of(Move move) {
  switch (move) {
    case Move::backward:
    case Move::backward_in_no_sync: return item_of(ScriptKind::backward);
    case Move::step:
    case Move::update: {
      ScriptItem out = item_of(ScriptKind::step);
      out.update = move == Move::update;
      return out;
    }
    case Move::boundary_false:
    case Move::boundary_true: {
      ScriptItem out = item_of(ScriptKind::set_boundary);
      out.boundary = move == Move::boundary_true;
      return out;
    }
    case Move::zero_grad: return item_of(ScriptKind::optimizer_zero_grad);
  }
  return {};
}

std::optional<Move> move_of(const ScriptItem& item, const Rules& rules, bool in_no_sync) {
  if (!item.ranks.empty()) return std::nullopt;
  switch (item.kind) {
    case ScriptKind::backward: return in_no_sync ? Move::backward_in_no_sync : Move::backward;
    case ScriptKind::step: return rules.marked && item.update ? Move::update : Move::step;
    case ScriptKind::set_boundary: return item.boundary ? Move::boundary_true : Move::boundary_false;
    case ScriptKind::optimizer_zero_grad: return Move::zero_grad;
    default: return std::nullopt;
  }
}

bool walk(Stand& stand, const Rules& rules, const std::vector<ScriptItem>& items, bool in_no_sync) {
  return std::all_of(items.begin(), items.end(), [&](const ScriptItem& item) {
    if (item.kind == ScriptKind::no_sync) return !in_no_sync && !item.items.empty() && walk(stand, rules, item.items, true);
    const auto move = move_of(item, rules, in_no_sync);
    return move && (!in_no_sync || *move == Move::backward_in_no_sync) && stand.take(*move, rules);
  });
}

}  // namespace

std::vector<ScriptItem> script_of(const std::vector<Move>& all) {
  std::vector<ScriptItem> out;
  bool in_no_sync = false;
  for (const Move move : all) {
    const bool inside = move == Move::backward_in_no_sync;
    if (inside && !in_no_sync) out.push_back(item_of(ScriptKind::no_sync));
    (inside ? out.back().items : out).push_back(item_of(move));
    in_no_sync = inside;
  }
  return out;
}

bool keeps_to(const Rules& rules, const std::vector<ScriptItem>& script) {
  Stand stand;
  return walk(stand, rules, script, false) && stand.closed();
}

}  // namespace gradledger::library
