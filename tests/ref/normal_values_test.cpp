#include "ref/normal_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "sim/base/hash.h"

namespace gradledger::ref {
namespace {

// As the header says it, one number at a time and in whole numbers.
double by_definition(std::uint64_t keys, std::uint64_t element, int bits) {
  const std::uint64_t key = mix(keys ^ element);
  std::int64_t sum = 0;
  for (std::uint64_t word = 0; word < 3; ++word)
    for (int part = 0; part < 4; ++part) sum += static_cast<std::int64_t>((mix(key + word) >> (16 * part)) & 0xFFFF) - 0x8000;
  const int drop = std::max(0, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::abs(sum)))) - bits);
  const std::int64_t kept = std::abs(sum) >> drop << drop;
  return static_cast<double>(sum < 0 ? -kept : kept) * 0x1p-16;
}

TEST(normal_values, are_those_of_their_definition_wherever_a_stretch_begins_and_ends) {
  for (const int bits : {8, 11, 24, 53})
    for (std::size_t n : {0, 1, 3, 8, 17, 1000}) {
      const std::uint64_t keys = hash_keys({static_cast<std::uint64_t>(bits), n}), first = n * 1'000'000'007;
      std::vector<double> out(n);
      draw_normal(keys, first, bits, 0.25, out);
      for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(out[i], 0.25 * by_definition(keys, first + i, bits)) << bits << " bits, element " << i << " of " << n;
    }
}

TEST(normal_values, of_whole_numbers_are_those_of_their_definition_and_leave_what_lies_between) {
  for (const std::uint32_t stride : {1u, 2u, 7u})
    for (const std::uint32_t most : {1u, 8u, 127u, 1u << 20, 0xFFFFFFFFu})
      for (std::size_t n : {0, 1, 3, 8, 17, 1000}) {
        const std::uint64_t keys = hash_keys({stride, most, n}), first = n * 1'000'000'007;
        std::vector<double> out(n, -1.0);
        draw_whole_numbers(keys, first, stride, most, 0.5, out);
        for (std::size_t i = 0; i < n; ++i) {
          const std::uint64_t whole = 1 + (mix(keys ^ mix(first + i)) >> 32) % most;
          ASSERT_EQ(out[i], i % stride == 0 ? 0.5 * static_cast<double>(whole) : -1.0) << stride << ", " << most << ": element " << i << " of " << n;
        }
      }
}

TEST(normal_values, are_rounded_to_the_nearest_and_of_two_to_the_even_one) {
  const double ulp = 0x1p-7;  // of 8 bits, from 1 to 2
  std::vector<double> values{1 + 0.5 * ulp, 1 + 1.5 * ulp, 1 + 0.49 * ulp, -(1 + 0.51 * ulp), 2 - 0.25 * ulp, 0, 0x1p-900 * (1 + 0.75 * ulp), 3};
  divide_and_round(1, 8, values);
  EXPECT_EQ(values, (std::vector<double>{1, 1 + 2 * ulp, 1, -(1 + ulp), 2, 0, 0x1p-900 * (1 + ulp), 3}));
  std::vector<double> thirds(9, 1.0);
  divide_and_round(3, 8, thirds);
  EXPECT_EQ(thirds, std::vector<double>(9, 171 * 0x1p-9));
  std::vector<double> kept(9, 1.0);
  divide_and_round(3, 53, kept);
  EXPECT_EQ(kept, std::vector<double>(9, 1.0 / 3.0));
}

}  // namespace
}  // namespace gradledger::ref
