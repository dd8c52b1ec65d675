// The known defects of the second version.
#pragma once

#include <span>

#include "sim/scenario/catalogue.h"

namespace gradledger::megatron_fsdp::v2 {

std::span<const Entry> catalogue();

}  // namespace gradledger::megatron_fsdp::v2
