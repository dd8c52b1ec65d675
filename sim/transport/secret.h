// What a connection begins with: who knows the secret of a run belongs to it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gradledger::transport {

inline constexpr std::size_t secret_bytes = 64;

// 64 hexadecimal digits from the system's generator. A secret, not a source of results.
std::string make_secret();

// Whether it has the form of one: 64 hexadecimal digits.
bool is_secret(std::string_view text);

// In a time that does not tell where they differ. Precondition: of equal length.
bool same_secret(std::string_view a, std::string_view b);

}  // namespace gradledger::transport
