// Commands as tests write them.
#pragma once

#include "sim/execution/devices.h"

namespace gradledger::testing {

// On the whole of a buffer.
inline Command command(OpKind kind, BufferId buffer, std::uint32_t numel, Dtype dtype, Stream stream = Stream::compute) {
  Command c;
  c.kind = kind;
  c.stream = stream;
  c.target = {buffer, 0, numel, dtype};
  return c;
}

}  // namespace gradledger::testing
