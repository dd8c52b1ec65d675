// The options of the command that has made these devices.
#pragma once

#include "verbs/session.h"

namespace gradledger::testing {

inline tool::Options options_for(Devices& devices) {
  tool::Options options;
  options.producer = "gpu";
  options.compare = "host,gpu";
  options.devices = &devices;
  return options;
}

}  // namespace gradledger::testing
