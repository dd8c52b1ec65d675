// The oracle reads formats by its own reading of IEEE 754; the simulator has another. They agree on every stored value.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "ref/dtype_facts.h"
#include "sim/numeric/kernels.h"

namespace gradledger::testing {
namespace {

bool same(double a, double b) { return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b); }

TEST(dtype_facts, both_readings_agree_on_every_16_bit_pattern) {
  std::vector<std::uint16_t> patterns(65536);
  for (std::uint32_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  const auto* bytes = reinterpret_cast<const std::byte*>(patterns.data());
  for (Dtype dtype : {Dtype::bfloat16, Dtype::float16}) {
    std::vector<double> oracle(patterns.size()), simulator(patterns.size());
    ref::read_stored(dtype, bytes, patterns.size(), oracle.data());
    numeric::convert(Dtype::float64, simulator.data(), dtype, patterns.data(), patterns.size());
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      ASSERT_TRUE(same(oracle[i], simulator[i])) << name_of(dtype) << " " << i;
      ASSERT_TRUE(same(oracle[i], ref::decode_stored(dtype, bytes + 2 * i))) << name_of(dtype) << " " << i;
    }
  }
}

TEST(dtype_facts, taking_fp32_apart_gives_what_the_processor_reads) {
  // Every exponent and sign, fractions with each bit alone, none and all.
  for (std::uint32_t top = 0; top < 512; ++top)
    for (std::uint32_t low = 0; low <= 24; ++low) {
      const std::uint32_t bits = top << 23 | (low < 23 ? 1u << low : low == 23 ? 0u : 0x7FFFFFu);
      float value;
      std::memcpy(&value, &bits, 4);
      ASSERT_TRUE(same(ref::decode_stored(Dtype::float32, reinterpret_cast<const std::byte*>(&bits)), value)) << bits;
    }
}

TEST(dtype_facts, are_those_of_the_standard_formats) {
  EXPECT_EQ(ref::facts_of(Dtype::float32).largest(), static_cast<double>(std::numeric_limits<float>::max()));
  EXPECT_EQ(ref::facts_of(Dtype::float32).tiny(), static_cast<double>(std::numeric_limits<float>::denorm_min()));
  EXPECT_EQ(2 * ref::facts_of(Dtype::float32).unit_roundoff(), static_cast<double>(std::numeric_limits<float>::epsilon()));
  EXPECT_EQ(ref::facts_of(Dtype::float64).largest(), std::numeric_limits<double>::max());
  EXPECT_EQ(ref::facts_of(Dtype::float16).largest(), 65504.0);
  EXPECT_EQ(ref::facts_of(Dtype::float16).tiny(), std::ldexp(1.0, -24));
  EXPECT_EQ(ref::facts_of(Dtype::bfloat16).unit_roundoff(), std::ldexp(1.0, -8));
}

}  // namespace
}  // namespace gradledger::testing
