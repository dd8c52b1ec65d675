// What a loop may call next, by the contract alone: scripts that a right wrapper serves, and no others. One state machine says it for drawing, exploring and shrinking.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sim/scenario/scenario.h"

namespace gradledger::library {

enum class Move : std::uint8_t { backward, backward_in_no_sync, boundary_false, boundary_true, step, update, zero_grad };
inline constexpr Move moves[] = {Move::backward, Move::backward_in_no_sync, Move::boundary_false, Move::boundary_true, Move::step, Move::update, Move::zero_grad};

struct Rules {
  std::set<std::uint32_t> micro_batches;                      // sizes of windows
  bool marked = false;                                        // a step behind each micro-batch, and the script says which updates
  bool zero_grad = false, no_sync = false, boundary = false;  // the wrapper has it
  bool zero_grad_anywhere = false;                            // the contract says what it does to an open window
  bool discards = true;

  std::uint32_t most() const { return *micro_batches.rbegin(); }
};

// `events`: of the wrapper. micro_batches: where somebody says them; empty: as the contract has them. Precondition: none is 0.
Rules rules_of(const StatedContract& contract, bool zero_grad_is_stated, const std::vector<std::string>& events, const std::vector<std::uint32_t>& micro_batches);

// Where a loop stands.
class Stand {
 public:
  // False, and nothing happens, where the contract has no such call here.
  bool take(Move move, const Rules& rules);
  bool closed() const { return stepped_ && micro_batches_ == 0; }  // every gradient was applied, in one window at least

 private:
  bool take_backward(bool last_possible, const Rules& rules);
  bool take_step(bool updates, const Rules& rules);
  bool take_boundary(bool value, const Rules& rules);
  bool take_zero_grad(const Rules& rules);

  std::uint32_t micro_batches_ = 0;  // of the open window
  bool stepped_ = false;             // some window was closed
  bool owes_step_ = false;           // of marked windows
  bool synced_ = true;               // the last backward was outside of no_sync
  std::optional<bool> boundary_;
  std::optional<Move> last_;
};

// Events as items, a block for each run of micro-batches in no_sync.
std::vector<ScriptItem> script_of(const std::vector<Move>& all);

// Whether every item is one that the contract has there, and all windows are closed. Precondition: unrolled (search/shrink/edits.h).
bool keeps_to(const Rules& rules, const std::vector<ScriptItem>& script);

}  // namespace gradledger::library
