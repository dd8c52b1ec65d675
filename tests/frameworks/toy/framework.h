// A framework that nobody has, in one folder: gradients are kept to their rank until the loop calls flush(), an event of its own, which
// averages them into another buffer; step() applies that one. It shows what a new framework takes.
#pragma once

#include "sim/frameworks/framework.h"

namespace gradledger::toy {

const Framework* framework();

}  // namespace gradledger::toy
