// Which reports of the catalogue are of something that an engine serves.
#pragma once

#include "sim/scenario/catalogue.h"

namespace gradledger {

// Whether its framework, in a release that it is about, has an engine. A scenario may show it all the same: what the framework does is written out as calls of a loop.
bool is_served(const Entry& entry);

}  // namespace gradledger
