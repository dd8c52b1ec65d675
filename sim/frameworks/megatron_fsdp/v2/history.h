// The releases of the second version as searches and lists see them.
#pragma once

#include "sim/frameworks/history.h"

namespace gradledger::megatron_fsdp::v2 {

const History& history();

}  // namespace gradledger::megatron_fsdp::v2
