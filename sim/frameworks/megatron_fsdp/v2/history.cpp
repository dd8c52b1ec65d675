#include "sim/frameworks/megatron_fsdp/v2/history.h"

#include <array>

#include "sim/frameworks/megatron_fsdp/v2/behaviour.h"
#include "sim/frameworks/yes_no_history.h"

namespace gradledger::megatron_fsdp::v2 {
namespace {

constexpr std::array<std::string_view, 2> compared{"0.6.0", "0.6.1"};

// A row an entry.
// clang-format off
constexpr Repair repaired[] = {
    {"mfsdp-11", "reduces_unfinished", "no", "yes", "Give each module that is sharded parameters that are always used together."},
    {"mfsdp-12", "module_zero_grad_of_shards", "no", "yes", "Call optimizer.zero_grad()."},
    {"mfsdp-13", "reads_grad_comm_dtype", "no", "yes"},
};
// clang-format on

}  // namespace

const History& history() {
  static const YesNoHistory it = yes_no_history<Behaviour>(switches(), compared, "", repaired, behaviour_of);
  return it;
}

}  // namespace gradledger::megatron_fsdp::v2
