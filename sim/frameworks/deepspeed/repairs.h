// What repairs DeepSpeed's known defects, and how to avoid them: switches of the engines with the value that is wrong and the one that is right.
#pragma once

#include <span>

#include "sim/frameworks/history.h"

namespace gradledger {

std::span<const Repair> repairs();

}  // namespace gradledger
