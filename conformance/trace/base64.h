// Bytes as text (RFC 4648, with padding).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradledger::conform {

std::string base64_of(std::span<const std::byte> bytes);

// Nothing where the text is not what base64_of() makes of some bytes.
std::optional<std::vector<std::byte>> bytes_of_base64(std::string_view text);

}  // namespace gradledger::conform
