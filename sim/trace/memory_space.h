// Where a buffer lies.
#pragma once

#include <cstdint>
#include <string_view>

namespace gradledger {

enum class MemorySpace : std::uint8_t { device, host };

std::string_view name_of(MemorySpace space);

}  // namespace gradledger
