#include "conformance/trace/base64.h"

#include <array>
#include <cstdint>

namespace gradledger::conform {
namespace {

constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::uint32_t no_digit = 64;

constexpr std::array<std::uint8_t, 256> digits = [] {
  std::array<std::uint8_t, 256> out{};
  out.fill(no_digit);
  for (std::uint8_t i = 0; i < 64; ++i) out[static_cast<unsigned char>(alphabet[i])] = i;
  return out;
}();

}  // namespace

std::string base64_of(std::span<const std::byte> bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < 3; ++i) word = word << 8 | (i < n ? static_cast<std::uint32_t>(bytes[at + i]) : 0);
    for (std::size_t i = 0; i < 4; ++i) out += i <= n ? alphabet[word >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}

std::optional<std::vector<std::byte>> bytes_of_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::vector<std::byte> out;
  out.reserve(text.size() / 4 * 3);
  for (std::size_t at = 0; at < text.size(); at += 4) {
    const bool last = at + 4 == text.size();
    const std::size_t padding = last && text[at + 3] == '=' ? (text[at + 2] == '=' ? 2 : 1) : 0;
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::uint32_t digit = i < 4 - padding ? digits[static_cast<unsigned char>(text[at + i])] : 0;
      if (digit == no_digit) return std::nullopt;
      word = word << 6 | digit;
    }
    for (std::size_t i = 0; i < 3; ++i) {
      const auto byte = static_cast<std::byte>(word >> (16 - 8 * i) & 0xff);
      if (i < 3 - padding) out.push_back(byte);
      else if (byte != std::byte{0}) return std::nullopt;
    }
  }
  return out;
}

}  // namespace gradledger::conform
