// Counter-based pseudo-random numbers and the trace hash. One seed drives everything: a stream is a pure function of its keys,
// so no draw depends on how many were made before it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string_view>

namespace gradledger {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64-bit words whose outputs pass for random.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// A random word for a tuple of keys.
constexpr std::uint64_t hash_keys(std::initializer_list<std::uint64_t> keys) {
  std::uint64_t state = 0x243F6A8885A308D3u;
  for (std::uint64_t key : keys) state = mix(state ^ key);
  return state;
}

// A random word for a list of pairs of keys, with one multiplication for each: the halves of a product of 128 bits, folded, as in wyhash (Wang Yi).
class PairHash {
 public:
  void add(std::uint64_t a, std::uint64_t b) {
    __extension__ typedef unsigned __int128 Wide;
    const Wide product = Wide{state_ ^ a ^ 0xA0761D6478BD642Fu} * (std::rotl(state_, 32) ^ b ^ 0xE7037ED1A0B428DBu);
    state_ = static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64) ^ 0x8EBC6AF09C88C6E3u;
  }
  void add_bytes(std::span<const std::byte> bytes) {
    std::array<std::uint64_t, 2> words;
    for (add(bytes.size(), 1); !bytes.empty(); add(words[0], words[1])) {
      words.fill(0);
      const std::size_t taken = std::min(bytes.size(), sizeof words);
      std::memcpy(words.data(), bytes.data(), taken);
      bytes = bytes.subspan(taken);
    }
  }
  std::uint64_t value() const { return mix(state_); }

  static std::uint64_t of(std::string_view text) {
    PairHash hash;
    hash.add_bytes(std::as_bytes(std::span(text)));
    return hash.value();
  }

 private:
  std::uint64_t state_ = 0x243F6A8885A308D3u;
};

// A small sequential generator for the scheduler: same seed, same sequence on every platform.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    const std::uint64_t out = mix(state_);
    state_ += 0x9E3779B97F4A7C15u;
    return out;
  }

  // A number in [0, bound), bound > 0, by multiply-shift (Lemire); the bias is below 2^-32 for the bounds used here.
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>((static_cast<std::uint64_t>(static_cast<std::uint32_t>(next())) * bound) >> 32); }

 private:
  std::uint64_t state_;
};

// An order-sensitive 64-bit hash of what happened: equal traces hash equal.
class TraceHash {
 public:
  void add(std::uint64_t word) { state_ = mix(state_ ^ word) + word; }

  void add_bytes(std::span<const std::byte> bytes) {
    std::size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
      std::uint64_t word;
      std::memcpy(&word, bytes.data() + at, 8);
      add(word);
    }
    std::uint64_t tail = bytes.size();
    for (; at < bytes.size(); ++at) tail = (tail << 8) | static_cast<std::uint64_t>(bytes[at]);
    add(tail);
  }

  std::uint64_t value() const { return state_; }
  bool operator==(const TraceHash&) const = default;

 private:
  std::uint64_t state_ = 0x13198A2E03707344u;
};

}  // namespace gradledger
