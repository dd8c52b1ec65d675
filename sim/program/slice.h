// A stretch of a buffer.
#pragma once

#include <cstdint>

#include "sim/base/contract.h"

namespace gradledger {

using BufferId = std::uint32_t;

inline constexpr std::uint32_t no_index = 0xFFFFFFFFu;

struct Slice {
  BufferId buffer = no_index;
  std::uint64_t offset = 0;
  std::uint64_t numel = 0;

  bool operator==(const Slice&) const = default;
  Slice part(std::uint64_t from, std::uint64_t count) const {
    expects(from + count <= numel, "a part of a slice reaches past its end");
    return {buffer, offset + from, count};
  }
};

}  // namespace gradledger
