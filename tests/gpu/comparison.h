// One call, run on the host's kernels and on another implementation over copies of the same memory, compared by memcmp.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "tests/gpu/kernels_under_test.h"
#include "tests/numeric/operands.h"

namespace gradledger::testing {

// An array inside its own memory: `offset` elements and a margin before it, a margin after it.
class Array {
 public:
  static constexpr std::size_t margin_bytes = 64;

  template <class T>
  Array(const std::vector<T>& elements, std::size_t offset)
      : begin_(margin_bytes + offset * sizeof(T)), bytes_(begin_ + elements.size() * sizeof(T) + margin_bytes, std::byte{0xA5}) {
    if (!elements.empty()) std::memcpy(bytes_.data() + begin_, elements.data(), elements.size() * sizeof(T));
  }
  std::size_t begin() const { return begin_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::size_t begin_;
  std::vector<std::byte> bytes_;
};

using Addresses = std::vector<std::byte*>;

// body(T{}) for the types of gradients.
template <class Body>
void for_each_type(Body&& body) {
  body(float{});
  body(Bf16{});
  body(Fp16{});
}

// n values of the list, from `phase` on and around.
template <class T>
std::vector<T> cycle(const std::vector<T>& values, std::size_t n, std::size_t phase = 0) {
  std::vector<T> elements(n);
  for (std::size_t i = 0; i < n; ++i) elements[i] = values[(i + phase) % values.size()];
  return elements;
}

// Random bits, NaNs and infinities among them unless left out. Doubles are random fp32 values with random bits below.
template <class T>
std::vector<T> random_elements(std::size_t n, std::uint64_t seed, bool finite = false) {
  Random random(seed);
  std::vector<T> elements(n);
  for (T& x : elements) {
    using Short = std::conditional_t<std::is_same_v<T, double>, float, T>;
    const BitsOf<Short> infinity = static_cast<BitsOf<Short>>(reference::format_of<Short>.infinity());
    auto word = static_cast<BitsOf<Short>>(random.next());
    while (finite && (word & infinity) == infinity) word = static_cast<BitsOf<Short>>(random.next());
    if constexpr (std::is_same_v<T, double>) x = from_bits<double>(bits(static_cast<double>(from_bits<float>(word))) ^ (random.next() & 0x1FFFFFFFu));
    else x = from_bits<T>(word);
  }
  return elements;
}

// A comparison test: runs on every implementation of the program, and is skipped where that cannot run.
class Twins : public ::testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override {
    host_ = host_kernels();
    other_ = GetParam().make();
    if (const std::string why = other_->unavailable(); !why.empty()) GTEST_SKIP() << why;
  }
  // A test that compared nothing must not pass.
  void TearDown() override {
    if (IsSkipped()) return;
    RecordProperty("compared", std::to_string(compared_));
    EXPECT_GT(compared_, 0u) << "bytes compared";
  }

  // call(kernels, addresses of the arrays) on both sides; afterwards all memory must be equal, margins included.
  template <class Call>
  void compare(const std::vector<Array>& arrays, Call&& call) {
    run(*host_, arrays, call);
    run_here(arrays, call);
    for (std::size_t slot = 0; slot < arrays.size(); ++slot) {
      std::vector<std::byte> expected(arrays[slot].bytes().size());
      std::vector<std::byte> observed(expected.size());
      host_->read(slot, expected);
      other_->read(slot, observed);
      compared_ += expected.size();
      if (std::memcmp(expected.data(), observed.data(), expected.size()) == 0) continue;
      const auto at = std::mismatch(expected.begin(), expected.end(), observed.begin()).first - expected.begin();
      FAIL() << "array " << slot << " differs first at byte " << at - static_cast<std::ptrdiff_t>(arrays[slot].begin()) << ": " << hex_around(observed, at)
             << " where the host has " << hex_around(expected, at);
    }
  }

  // call(kernels, addresses) on the other implementation only.
  template <class Call>
  void run_here(const std::vector<Array>& arrays, Call&& call) {
    run(*other_, arrays, call);
    sizes_.clear();
    for (const Array& array : arrays) sizes_.push_back(array.bytes().size());
  }
  // Two slots of the other implementation, margins included, after compare or run_here.
  void expect_equal_slots(std::size_t left, std::size_t right) {
    std::vector<std::byte> a(sizes_.at(left));
    std::vector<std::byte> b(sizes_.at(right));
    other_->read(left, a);
    other_->read(right, b);
    compared_ += a.size();
    const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
    ASSERT_TRUE(a == b) << "slots " << left << " and " << right << " differ first at byte " << at;
  }

  // Lengths about the widths of vectors, blocks and chunks.
  static std::vector<std::size_t> lengths() {
    std::vector<std::size_t> all;
    for (std::size_t n = 0; n <= 33; ++n) all.push_back(n);
    all.insert(all.end(), {63, 64, 65, 255, 256, 257, 4095, 4096, 4097, 65'537});
    return all;
  }
  // Misalignments of target and source, in elements: equal ones, ones that a head makes good, ones that none does.
  static std::vector<std::pair<std::size_t, std::size_t>> offsets() {
    if (sanitized) return {{0, 0}, {1, 1}, {7, 3}};
    return {{0, 0}, {1, 1}, {0, 1}, {3, 0}, {4, 4}, {7, 3}};
  }

  Kernels& host() { return *host_; }
  Kernels& other() { return *other_; }
  void count_compared(std::size_t bytes) { compared_ += bytes; }

 private:
  template <class Call>
  static void run(Kernels& kernels, const std::vector<Array>& arrays, Call&& call) {
    Addresses addresses;
    for (std::size_t slot = 0; slot < arrays.size(); ++slot) addresses.push_back(kernels.place(slot, arrays[slot].bytes()) + arrays[slot].begin());
    call(kernels, addresses);
  }
  static std::string hex_around(const std::vector<std::byte>& bytes, std::ptrdiff_t at) {
    std::string text;
    for (std::ptrdiff_t i = at / 8 * 8; i < at / 8 * 8 + 8 && i < static_cast<std::ptrdiff_t>(bytes.size()); ++i) {
      const auto value = std::to_integer<unsigned>(bytes[static_cast<std::size_t>(i)]);
      text += "0123456789abcdef"[value >> 4];
      text += "0123456789abcdef"[value & 15];
    }
    return text;
  }

  std::unique_ptr<Kernels> host_;
  std::unique_ptr<Kernels> other_;
  std::vector<std::size_t> sizes_;  // of the slots
  std::uint64_t compared_ = 0;
};

inline std::string implementation_name(const ::testing::TestParamInfo<Implementation>& info) { return info.param.name; }
inline void PrintTo(const Implementation& implementation, std::ostream* out) { *out << implementation.name; }

}  // namespace gradledger::testing
