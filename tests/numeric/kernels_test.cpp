// Every array kernel against the one-element definitions of sim/numeric/scalar.h, on every instruction set of this machine, for
// the lengths and alignments at which vector code goes wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "hwy/targets.h"
#include "sim/base/contract.h"
#include "sim/numeric/kernels.h"
#include "tests/numeric/operands.h"

namespace gradledger::testing {
namespace {

using numeric::narrow;
using numeric::widen;

class kernels : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

std::vector<std::size_t> lengths() {
  std::vector<std::size_t> all;
  for (std::size_t n = 0; n <= 33; ++n) all.push_back(n);
  all.insert(all.end(), {63, 64, 65, 4095, 4096, 4097});
  return all;
}

// Elements at `offset` inside a larger allocation, so that neighbours show a store outside and addresses are misaligned.
template <class T>
class Buffer {
 public:
  static constexpr std::size_t margin = 40;
  Buffer(std::size_t n, std::size_t offset, const std::vector<T>& values, std::size_t phase) : begin_(margin + offset), n_(n), storage_(n + offset + 2 * margin) {
    for (std::size_t i = 0; i < storage_.size(); ++i) storage_[i] = values[(i + phase) % values.size()];
    original_ = storage_;
  }
  T* data() { return storage_.data() + begin_; }
  const T* original() const { return original_.data() + begin_; }

  void expect(const std::vector<T>& expected, std::uint64_t& count) const {
    for (std::size_t i = 0; i < storage_.size(); ++i) {
      const bool inside = i >= begin_ && i < begin_ + n_;
      const T wanted = inside ? expected[i - begin_] : original_[i];
      ASSERT_EQ(bits(storage_[i]), bits(wanted)) << "element " << static_cast<std::int64_t>(i - begin_) << " of " << n_;
      count += inside;
    }
  }

 private:
  std::size_t begin_;
  std::size_t n_;
  std::vector<T> storage_;
  std::vector<T> original_;
};

// kernel(target, source, n) against definition(target element, source element) for every length, both operands aligned and
// misaligned by one element, then over all pairs of interesting values in one call.
template <class T, class S, class Kernel, class Definition>
void compare(Kernel&& kernel, Definition&& definition) {
  const std::vector<T> targets = interesting_values<T>();
  const std::vector<S> sources = interesting_values<S>();
  std::uint64_t count = 0;
  std::uint64_t wanted = 0;
  const auto run = [&](std::size_t n, std::size_t target_offset, std::size_t source_offset, std::size_t phase) {
    Buffer<T> target(n, target_offset, targets, phase);
    Buffer<S> source(n, source_offset, sources, 3 * phase + 1);
    std::vector<T> expected(n);
    for (std::size_t i = 0; i < n; ++i) expected[i] = definition(target.original()[i], source.original()[i]);
    kernel(target.data(), source.data(), n);
    target.expect(expected, count);
    source.expect(std::vector<S>(source.original(), source.original() + n), wanted);
  };
  for (std::size_t n : lengths())
    for (std::size_t target_offset : {0, 1})
      for (std::size_t source_offset : {0, 1})
        for (std::size_t phase = 0; phase < (n < 100 ? targets.size() : 1); phase += 17) {
          ASSERT_NO_FATAL_FAILURE(run(n, target_offset, source_offset, phase)) << "length " << n;
        }
  std::vector<T> left;
  std::vector<S> right;
  for (T a : targets)
    for (S b : sources) {
      left.push_back(a);
      right.push_back(b);
    }
  std::vector<T> result = left;
  kernel(result.data(), right.data(), result.size());
  for (std::size_t i = 0; i < result.size(); ++i, ++count)
    ASSERT_EQ(bits(result[i]), bits(definition(left[i], right[i]))) << std::hex << bits(left[i]) << " and " << bits(right[i]);
  wanted += result.size();
  report_count(count, wanted);
}

// ---- two dtypes -----------------------------------------------------------------------------------------------------------------

template <class T, class S>
void compare_accumulate() {
  compare<T, S>([](T* target, const S* source, std::size_t n) { numeric::accumulate(dtype_of<T>, target, dtype_of<S>, source, n); },
                [](T t, S s) { return narrow<T>(widen(t) + widen(s)); });
}

template <class T, class S>
void compare_convert() {
  compare<T, S>([](T* target, const S* source, std::size_t n) { numeric::convert(dtype_of<T>, target, dtype_of<S>, source, n); },
                [](T, S s) {
                  if constexpr (std::is_same_v<T, S>) return s;
                  else return narrow<T>(widen(s));
                });
}

TEST_P(kernels, accumulate_into_fp32_rounds_once) {
  compare_accumulate<float, float>();
  compare_accumulate<float, Bf16>();
  compare_accumulate<float, Fp16>();
}
TEST_P(kernels, accumulate_into_bf16_rounds_once_from_fp32) {
  compare_accumulate<Bf16, float>();
  compare_accumulate<Bf16, Bf16>();
  compare_accumulate<Bf16, Fp16>();
}
TEST_P(kernels, accumulate_into_fp16_rounds_once_from_fp32) {
  compare_accumulate<Fp16, float>();
  compare_accumulate<Fp16, Bf16>();
  compare_accumulate<Fp16, Fp16>();
}
TEST_P(kernels, convert_rounds_once_and_copies_equal_dtypes_unchanged) {
  compare_convert<float, float>();
  compare_convert<float, Bf16>();
  compare_convert<float, Fp16>();
  compare_convert<Bf16, float>();
  compare_convert<Bf16, Bf16>();
  compare_convert<Bf16, Fp16>();
  compare_convert<Fp16, float>();
  compare_convert<Fp16, Bf16>();
  compare_convert<Fp16, Fp16>();
}

// ---- one dtype and a scalar -----------------------------------------------------------------------------------------------------

const float scalars[] = {1.0f, -1.0f, 0.5f, 1.0f / 3, 7.0f, 65519.0f, 65520.0f, 0x1.8p127f, 0x1.2p-127f, 0x1p-149f, 0.0f, -0.0f, INFINITY, NAN};

template <class T>
void compare_scalar_kernels() {
  for (std::size_t which = 0; which < std::size(scalars); which += sanitized ? 4 : 1) {
    const float scalar = scalars[which];
    SCOPED_TRACE(scalar);
    const T rounded = narrow<T>(scalar);
    compare<T, T>([&](T* target, const T*, std::size_t n) { numeric::multiply(dtype_of<T>, target, scalar, n); }, [&](T t, T) { return narrow<T>(widen(t) * scalar); });
    compare<T, T>([&](T* target, const T*, std::size_t n) { numeric::divide(dtype_of<T>, target, scalar, n); }, [&](T t, T) { return narrow<T>(widen(t) / scalar); });
    compare<T, T>([&](T* target, const T* source, std::size_t n) { numeric::premultiply(dtype_of<T>, target, source, scalar, n); },
                  [&](T, T s) { return numeric::mul(s, rounded); });
    compare<T, T>([&](T* target, const T* source, std::size_t n) { numeric::fused_accumulate(dtype_of<T>, target, source, scalar, n); },
                  [&](T t, T s) { return numeric::fma(s, rounded, t); });
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST_P(kernels, fp32_scalar_kernels_round_once) { compare_scalar_kernels<float>(); }
TEST_P(kernels, bf16_scalar_kernels_round_once) { compare_scalar_kernels<Bf16>(); }
TEST_P(kernels, fp16_scalar_kernels_round_once) { compare_scalar_kernels<Fp16>(); }

// The exactly rounded fma meets its hard cases only among many: random operands, the addend near the product.
template <class T>
void compare_fused_at_random() {
  Random random(31);
  const std::size_t n = 4099;
  const int rounds = sanitized ? 20 : 400;
  std::uint64_t count = 0;
  std::uint64_t rounded_twice = 0;
  for (int round = 0; round < rounds; ++round) {
    const float scalar = widen(from_bits<T>(random.next() & (reference::format_of<T>.infinity() - 1)));
    std::vector<T> source(n);
    std::vector<T> target(n);
    for (std::size_t i = 0; i < n; ++i) {
      source[i] = from_bits<T>(random.next());
      const T product = narrow<T>(widen(source[i]) * scalar);
      target[i] = from_bits<T>(bits(product) ^ (random.next() & (random.next() | 0xFFFu)));
    }
    std::vector<T> result = target;
    numeric::fused_accumulate(dtype_of<T>, result.data(), source.data(), scalar, n);
    for (std::size_t i = 0; i < n; ++i, ++count) {
      const T expected = numeric::fma(source[i], narrow<T>(scalar), target[i]);
      ASSERT_EQ(bits(result[i]), bits(expected)) << std::hex << bits(source[i]) << " and " << bits(target[i]);
      rounded_twice += bits(narrow<T>(std::fma(widen(source[i]), scalar, widen(target[i])))) != bits(expected);
    }
  }
  if (!std::is_same_v<T, float> && !sanitized) {
    EXPECT_GT(rounded_twice, 0u) << "no element needed the exact fma";
  }
  report_count(count, static_cast<std::uint64_t>(rounds) * n);
}

TEST_P(kernels, fused_accumulate_is_exactly_rounded_on_random_operands) {
  compare_fused_at_random<float>();
  compare_fused_at_random<Bf16>();
  compare_fused_at_random<Fp16>();
}

// ---- in place -------------------------------------------------------------------------------------------------------------------

// kernel(data, n) where the target is the source, against definition(element).
template <class T, class Kernel, class Definition>
void compare_in_place(Kernel&& kernel, Definition&& definition) {
  const std::vector<T> values = interesting_values<T>();
  std::uint64_t count = 0;
  std::uint64_t wanted = 0;
  for (std::size_t n : lengths())
    for (std::size_t offset : {0, 1}) {
      Buffer<T> buffer(n, offset, values, 5 * n);
      std::vector<T> expected(n);
      for (std::size_t i = 0; i < n; ++i) expected[i] = definition(buffer.original()[i]);
      kernel(buffer.data(), n);
      ASSERT_NO_FATAL_FAILURE(buffer.expect(expected, count)) << "length " << n;
      wanted += n;
    }
  report_count(count, wanted);
}

template <class T>
void compare_kernels_in_place() {
  const float scalar = 1.0f / 3;
  const T rounded = narrow<T>(scalar);
  compare_in_place<T>([](T* data, std::size_t n) { numeric::accumulate(dtype_of<T>, data, dtype_of<T>, data, n); }, [](T x) { return numeric::add(x, x); });
  compare_in_place<T>([](T* data, std::size_t n) { numeric::convert(dtype_of<T>, data, dtype_of<T>, data, n); }, [](T x) { return x; });
  compare_in_place<T>([&](T* data, std::size_t n) { numeric::premultiply(dtype_of<T>, data, data, scalar, n); }, [&](T x) { return numeric::mul(x, rounded); });
  compare_in_place<T>([&](T* data, std::size_t n) { numeric::fused_accumulate(dtype_of<T>, data, data, scalar, n); }, [&](T x) { return numeric::fma(x, rounded, x); });
}

TEST_P(kernels, a_target_may_be_its_own_source) {
  compare_kernels_in_place<float>();
  compare_kernels_in_place<Bf16>();
  compare_kernels_in_place<Fp16>();
}

// ---- all_finite -----------------------------------------------------------------------------------------------------------------

// Finite values only, of every size, then one infinity or NaN at each position in turn.
template <class T>
void look_for_infinities(std::vector<T> finite, const std::vector<T>& others) {
  std::uint64_t count = 0;
  std::uint64_t wanted = 0;
  for (std::size_t n : lengths())
    for (std::size_t offset : {0, 1}) {
      std::vector<T> data(n + offset + 1);
      for (std::size_t i = 0; i < data.size(); ++i) data[i] = finite[i % finite.size()];
      data[offset + n] = others[0];  // past the end: must not be seen
      if (offset) data[0] = others[0];
      ASSERT_TRUE(numeric::all_finite(dtype_of<T>, data.data() + offset, n)) << "length " << n;
      const std::size_t step = n < 100 ? 1 : 61;
      for (std::size_t at = 0; at < n; at += step)
        for (std::size_t k = 0; k < others.size(); ++k, ++count) {
          const T kept = data[offset + at];
          data[offset + at] = others[k];
          ASSERT_FALSE(numeric::all_finite(dtype_of<T>, data.data() + offset, n)) << "length " << n << ", position " << at;
          data[offset + at] = kept;
        }
      wanted += (n + step - 1) / step * others.size();
    }
  report_count(count, wanted);
}

template <class T>
void look_for_infinities() {
  std::vector<T> finite;
  std::vector<T> others;
  for (T x : interesting_values<T>()) (std::isfinite(widen(x)) ? finite : others).push_back(x);
  look_for_infinities(finite, others);
}

TEST_P(kernels, all_finite_sees_one_infinity_or_nan_at_any_position) {
  look_for_infinities<float>();
  look_for_infinities<Bf16>();
  look_for_infinities<Fp16>();
  look_for_infinities<double>({0.0, -0.0, 1.0, -0x1.fffffffffffffp1023, 0x1p-1074}, {INFINITY, -INFINITY, NAN, -NAN, from_bits<double>(0x7FF0000000000001u)});
}

// ---- the rest -------------------------------------------------------------------------------------------------------------------

TEST_P(kernels, dtypes_without_arithmetic_are_refused) {
  float data[4] = {};
  EXPECT_THROW(numeric::accumulate(Dtype::uint8, data, Dtype::uint8, data, 4), ContractViolation);
  EXPECT_THROW(numeric::accumulate(Dtype::float64, data, Dtype::float32, data, 1), ContractViolation);
  EXPECT_THROW(numeric::accumulate(Dtype::float32, data, Dtype::float64, data, 1), ContractViolation);
  EXPECT_THROW(numeric::convert(Dtype::float32, data, Dtype::uint8, data, 4), ContractViolation);
  EXPECT_THROW(numeric::convert(Dtype::uint8, data, Dtype::float32, data, 4), ContractViolation);
  EXPECT_THROW(numeric::multiply(Dtype::float64, data, 1.0f, 1), ContractViolation);
  EXPECT_THROW(numeric::all_finite(Dtype::uint8, data, 4), ContractViolation);
  EXPECT_THROW(numeric::squared_norm(Dtype::float64, data, 1), ContractViolation);
}

std::string target_name(const ::testing::TestParamInfo<std::int64_t>& info) { return hwy::TargetName(info.param); }
INSTANTIATE_TEST_SUITE_P(on_target, kernels, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), target_name);

TEST(kernel_dispatch, each_target_is_reached) {
  std::set<std::size_t> reached;
  const std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
  for (std::int64_t target : targets) {
    hwy::SetSupportedTargetsForTest(target);
    float one = 1;
    numeric::multiply(Dtype::float32, &one, 1.0f, 1);
    reached.insert(hwy::GetChosenTarget().GetIndex());
    hwy::SetSupportedTargetsForTest(0);
  }
  report_count(reached.size(), targets.size());
}

TEST(kernels_without_vectors, fill_stores_the_rounded_value_in_every_dtype) {
  std::uint64_t count = 0;
  const double values[] = {0.0, -0.0, 1.0, 1.0 / 3, 65504.0, 65520.0, 0x1p130, -0x1p130, 0x1p-152, INFINITY, NAN};
  for (double value : values) {
    float f[3];
    Bf16 b[3];
    Fp16 h[3];
    double d[3];
    numeric::fill(Dtype::float32, f, value, 3);
    numeric::fill(Dtype::bfloat16, b, value, 3);
    numeric::fill(Dtype::float16, h, value, 3);
    numeric::fill(Dtype::float64, d, value, 3);
    const reference::Value exact = reference::decode_double(value);
    for (int i = 0; i < 3; ++i, ++count) {
      EXPECT_EQ(bits(f[i]), reference::encode(reference::fp32, exact)) << value;
      EXPECT_EQ(bits(b[i]), reference::encode(reference::bf16, exact)) << value;
      EXPECT_EQ(bits(h[i]), reference::encode(reference::fp16, exact)) << value;
      EXPECT_EQ(bits(d[i]), bits(value));
    }
  }
  std::uint8_t flags[5] = {9, 9, 9, 9, 9};
  numeric::fill(Dtype::uint8, flags, 1.0, 4);
  for (int i = 0; i < 5; ++i, ++count) EXPECT_EQ(flags[i], i < 4 ? 1 : 9);
  report_count(count, std::size(values) * 3 + 5);
}

TEST(kernels_without_vectors, maximum_u8_keeps_the_larger_flag) {
  std::vector<std::uint8_t> target;
  std::vector<std::uint8_t> source;
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) {
      target.push_back(static_cast<std::uint8_t>(a));
      source.push_back(static_cast<std::uint8_t>(b));
    }
  const std::vector<std::uint8_t> before = target;
  numeric::maximum_u8(target.data(), source.data(), target.size());
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < target.size(); ++i, ++count) ASSERT_EQ(target[i], std::max(before[i], source[i]));
  report_count(count, 1u << 16);
}

TEST(kernels_without_vectors, fp64_totals_add_fp64_terms) {
  std::vector<double> total = {1.0, 0.1, -0.0, 0x1p1023};
  const std::vector<double> terms = {0x1p-53, 0.2, -0.0, 0x1p1023};
  const std::vector<double> expected = {1.0, 0.1 + 0.2, -0.0, INFINITY};
  numeric::accumulate(Dtype::float64, total.data(), Dtype::float64, terms.data(), total.size());
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < total.size(); ++i, ++count) EXPECT_EQ(bits(total[i]), bits(expected[i]));
  report_count(count, 4);
}

}  // namespace
}  // namespace gradledger::testing
