// The known defects of DeepSpeed.
#pragma once

#include <span>

#include "sim/scenario/catalogue.h"

namespace gradledger::deepspeed {

std::span<const Entry> catalogue();

}  // namespace gradledger::deepspeed
