// DeepSpeed's history, as searches and lists see it.
#pragma once

#include "sim/frameworks/history.h"

namespace gradledger::deepspeed {

const History& history();

}  // namespace gradledger::deepspeed
