#include "sim/frameworks/megatron_fsdp/v2/behaviour.h"

#include <array>

#include "sim/frameworks/yes_no_history.h"

namespace gradledger::megatron_fsdp::v2 {
namespace {

// In no release of the package; a scenario sets them by hand.
constexpr std::array all{
    SwitchInfo{"reduces_unfinished", &Behaviour::reduces_unfinished, "", "a repair of ours", "what a backward did not reach of a module counts as zeros, as in the first version"},
    SwitchInfo{"raises_unfinished", &Behaviour::raises_unfinished, "", "Megatron-LM's head of 2026-08-22",
               "a module that a backward left unfinished raises in the next one that reaches it, as in Megatron-LM's head of 2026-08-22"},
    SwitchInfo{"module_zero_grad_of_shards", &Behaviour::module_zero_grad_of_shards, "", "a repair of ours",
               "model.zero_grad() clears main_grad of modules that stayed gathered too"},
    SwitchInfo{"reads_grad_comm_dtype", &Behaviour::reads_grad_comm_dtype, "", "a repair of ours", "gradients are reduced in grad_comm_dtype, or else in main_grads_dtype"}};

constexpr std::string_view title = "Megatron-FSDP v2";

}  // namespace

std::span<const SwitchInfo> switches() { return all; }

std::optional<std::string> release_note(std::string_view as_of) { return note_of_newer_release(as_of, newest_release); }

Result<Behaviour> behaviour_of(const AsOf& as_of) {
  Behaviour out;
  place(switches(), out);
  if (const auto release = asked_release(as_of, oldest_release, title); !release) return release.error();
  if (auto problem = set_by_hand(as_of, switches(), title, out)) return *problem;
  return out;
}

}  // namespace gradledger::megatron_fsdp::v2
