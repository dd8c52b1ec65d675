// Frameworks that are judged where they run and have no engine here: their contracts, and no more. docs/drivers.md.
#pragma once

#include "sim/frameworks/framework.h"

namespace gradledger::torch {

const Framework* plain();     // "torch": an optimizer and a loop, one process
const Framework* external();  // "external": anybody's own; the scenario states the contract

}  // namespace gradledger::torch
