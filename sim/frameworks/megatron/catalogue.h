// The known defects of Megatron-Core, and of what is built on it.
#pragma once

#include <span>

#include "sim/scenario/catalogue.h"

namespace gradledger::megatron {

std::span<const Entry> catalogue();

}  // namespace gradledger::megatron
