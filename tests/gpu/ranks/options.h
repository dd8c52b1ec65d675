// The options of the command that has made these devices.
#pragma once

#include "verbs/session.h"

namespace gradledger::testing {

inline verbs::Options options_for(Devices& devices) {
  verbs::Options options;
  options.producer = "gpu";
  options.compare = "host,gpu";
  options.devices = &devices;
  return options;
}

}  // namespace gradledger::testing
