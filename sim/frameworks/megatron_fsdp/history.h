// The releases of megatron-fsdp as searches and lists see them.
#pragma once

#include <span>
#include <string_view>

#include "sim/frameworks/history.h"

namespace gradledger::megatron_fsdp {

const History& history();

}  // namespace gradledger::megatron_fsdp
