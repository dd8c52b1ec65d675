#include "sim/transport/secret.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "sim/base/contract.h"

namespace gradledger::transport {
namespace {

constexpr std::string_view digits = "0123456789abcdef";

}  // namespace

std::string make_secret() {
  std::array<unsigned char, secret_bytes / 2> bytes{};
  ensures(getentropy(bytes.data(), bytes.size()) == 0, "the system's generator gives no bytes");
  std::string secret;
  for (const unsigned char byte : bytes) {
    secret += digits[byte >> 4];
    secret += digits[byte & 15];
  }
  return secret;
}

bool is_secret(std::string_view text) {
  return text.size() == secret_bytes && std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); });
}

bool same_secret(std::string_view a, std::string_view b) {
  expects(a.size() == b.size(), "secrets of different lengths are compared");
  volatile unsigned char difference = 0;  // or the compiler may leave the loop early
  for (std::size_t i = 0; i < a.size(); ++i) difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

}  // namespace gradledger::transport
