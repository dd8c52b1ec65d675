// Element-wise twins: every dtype, length and misalignment, special and random operands.
#include <cmath>

#include "tests/gpu/comparison.h"

namespace gradledger::testing {
namespace {

// Doubles about the ties of every narrower type, and what narrows to nothing or to infinity.
std::vector<double> interesting_doubles() {
  std::vector<double> values;
  for (float f : interesting_values<float>())
    for (std::uint64_t below : {0ull, 1ull, 0x0FFFFFFFull, 0x10000000ull, 0x10000001ull, 0x1FFFFFFFull}) values.push_back(from_bits<double>(bits(static_cast<double>(f)) + below));
  for (std::uint64_t word : {0x0000000000000001ull, 0x000FFFFFFFFFFFFFull, 0x7FEFFFFFFFFFFFFFull, 0x7FF0000000000000ull, 0xFFF0000000000001ull, 0xFFF8000000000000ull})
    values.push_back(from_bits<double>(word));
  return values;
}

template <class T>
std::vector<T> values_of() {
  if constexpr (std::is_same_v<T, double>) return interesting_doubles();
  else return interesting_values<T>();
}

class elementwise_twins : public Twins {
 protected:
  // call(kernels, target, source, n) over all lengths and offsets, and over random bits.
  template <class T, class S, class Call>
  void compare_arrays(const std::vector<T>& targets, const std::vector<S>& sources, Call&& call) {
    for (std::size_t n : lengths())
      for (const auto& [target, source] : offsets()) {
        const auto on_addresses = [&, n = n](Kernels& k, const Addresses& at) { call(k, at[0], at[1], n); };
        ASSERT_NO_FATAL_FAILURE(compare({Array(cycle(targets, n, n), target), Array(cycle(sources, n, 3 * n + 1), source)}, on_addresses))
            << "length " << n << ", offsets " << target << " and " << source;
      }
    const std::size_t many = sanitized ? 30'001 : 300'001;
    compare({Array(random_elements<T>(many, 1), 1), Array(random_elements<S>(many, 2), 1)}, [&](Kernels& k, const Addresses& at) { call(k, at[0], at[1], many); });
  }

  // The same, and over all pairs of special values.
  template <class T, class S, class Call>
  void compare_pairs(Call&& call) {
    const std::vector<T> targets = values_of<T>();
    const std::vector<S> sources = values_of<S>();
    ASSERT_NO_FATAL_FAILURE(compare_arrays(targets, sources, call));
    std::vector<T> left;
    for (T a : targets) left.insert(left.end(), sources.size(), a);
    compare({Array(left, 0), Array(cycle(sources, left.size()), 0)}, [&](Kernels& k, const Addresses& at) { call(k, at[0], at[1], left.size()); });
  }

  // call(kernels, target, target, n): the source is the target.
  template <class T, class Call>
  void compare_in_place(Call&& call) {
    const std::vector<T> values = values_of<T>();
    for (std::size_t n : lengths())
      for (std::size_t offset : {0, 1})
        ASSERT_NO_FATAL_FAILURE(compare({Array(cycle(values, n, 5 * n), offset)}, [&](Kernels& k, const Addresses& at) { call(k, at[0], at[0], n); }))
            << "length " << n << ", offset " << offset;
  }
};
INSTANTIATE_TEST_SUITE_P(all, elementwise_twins, ::testing::ValuesIn(implementations_under_test()), implementation_name);

const float scalars[] = {1.0f, -1.0f, 0.5f, 1.0f / 3, 7.0f, 65519.0f, 65520.0f, 0x1.8p127f, 0x1.2p-127f, 0x1p-149f, 0.0f, -0.0f, INFINITY, NAN};

TEST_P(elementwise_twins, convert_between_gradient_dtypes_and_to_and_from_fp64) {
  const auto one = [&](auto t, auto s) {
    using T = decltype(t);
    using S = decltype(s);
    compare_arrays(values_of<T>(), values_of<S>(), [](Kernels& k, void* target, const void* source, std::size_t n) { k.convert(dtype_of<T>, target, dtype_of<S>, source, n); });
    const std::vector<S> sources = values_of<S>();
    compare({Array(std::vector<T>(sources.size()), 0), Array(sources, 0)},
            [&](Kernels& k, const Addresses& at) { k.convert(dtype_of<T>, at[0], dtype_of<S>, at[1], sources.size()); });
  };
  for_each_type([&](auto t) {
    for_each_type([&](auto s) { one(t, s); });
    one(t, double{});
    one(double{}, t);
  });
}

TEST_P(elementwise_twins, convert_copies_equal_dtypes_unchanged) {
  compare_in_place<float>([](Kernels& k, void* target, const void* source, std::size_t n) { k.convert(Dtype::float32, target, Dtype::float32, source, n); });
  compare_arrays(values_of<double>(), values_of<double>(),
                 [](Kernels& k, void* target, const void* source, std::size_t n) { k.convert(Dtype::float64, target, Dtype::float64, source, n); });
}

TEST_P(elementwise_twins, accumulate_every_dtype_into_every_dtype) {
  for_each_type([&](auto t) {
    for_each_type([&](auto s) {
      using T = decltype(t);
      using S = decltype(s);
      compare_pairs<T, S>([](Kernels& k, void* target, const void* source, std::size_t n) { k.accumulate(dtype_of<T>, target, dtype_of<S>, source, n); });
    });
  });
}

// Without NaNs: the payload of an fp64 NaN is the processor's.
TEST_P(elementwise_twins, accumulate_fp64_totals) {
  const auto add = [](Kernels& k, void* target, const void* source, std::size_t n) { k.accumulate(Dtype::float64, target, Dtype::float64, source, n); };
  for (std::size_t n : lengths())
    for (const auto& [target, source] : offsets())
      compare({Array(random_elements<double>(n, n, true), target), Array(random_elements<double>(n, n + 1, true), source)},
              [&, n = n](Kernels& k, const Addresses& at) { add(k, at[0], at[1], n); });
}

TEST_P(elementwise_twins, multiply_and_premultiply_by_every_scalar) {
  for (float scalar : scalars)
    for_each_type([&](auto t) {
      using T = decltype(t);
      SCOPED_TRACE(scalar);
      const std::vector<T> values = values_of<T>();
      compare_in_place<T>([&](Kernels& k, void* target, const void*, std::size_t n) { k.multiply(dtype_of<T>, target, scalar, n); });
      compare_arrays(values, values, [&](Kernels& k, void* target, const void* source, std::size_t n) { k.premultiply(dtype_of<T>, target, source, scalar, n); });
    });
}

TEST_P(elementwise_twins, divide_by_every_scalar) {
  for (float scalar : scalars)
    for_each_type([&](auto t) {
      using T = decltype(t);
      SCOPED_TRACE(scalar);
      compare_in_place<T>([&](Kernels& k, void* target, const void*, std::size_t n) { k.divide(dtype_of<T>, target, scalar, n); });
    });
}

// Of special values too: a root of -0 is -0, one of less or of a NaN is the canonical NaN.
TEST_P(elementwise_twins, square_root_rounds_once_and_makes_nans_canonical) {
  compare_in_place<float>([](Kernels& k, void* target, const void*, std::size_t n) { k.square_root(static_cast<float*>(target), n); });
  const std::size_t many = sanitized ? 30'001 : 300'001;
  compare({Array(random_elements<float>(many, 1), 1)}, [&](Kernels& k, const Addresses& at) { k.square_root(reinterpret_cast<float*>(at[0]), many); });
  const std::vector<float> special{0.0f, -0.0f, INFINITY, -INFINITY, NAN, -NAN, -1.0f, -0x1p-149f, 0x1p-149f, 0x1p-126f, 4.0f};
  const std::vector<float> roots{0.0f, -0.0f, INFINITY, NAN, NAN, NAN, NAN, NAN, 0x1.6a09e6p-75f, 0x1p-63f, 2.0f};
  run_here({Array(special, 1)}, [&](Kernels& k, const Addresses& at) { k.square_root(reinterpret_cast<float*>(at[0]), special.size()); });
  const Array array(special, 1);
  std::vector<std::byte> bytes = array.bytes();
  other().read(0, bytes);
  for (std::size_t i = 0; i < special.size(); ++i) {
    float found;
    std::memcpy(&found, bytes.data() + array.begin() + i * sizeof(float), sizeof(float));
    EXPECT_EQ(bits(found), bits(numeric::canonical(roots[i]))) << special[i];
  }
}

TEST_P(elementwise_twins, fused_accumulate_rounds_once) {
  for (float scalar : scalars)
    for_each_type([&](auto t) {
      using T = decltype(t);
      SCOPED_TRACE(scalar);
      compare_pairs<T, T>([&](Kernels& k, void* target, const void* source, std::size_t n) { k.fused_accumulate(dtype_of<T>, target, source, scalar, n); });
    });
}

// The exactly rounded fma meets its hard cases only among many: random factors, the addend near the product.
TEST_P(elementwise_twins, fused_accumulate_on_addends_near_the_product) {
  for_each_type([&](auto t) {
    using T = decltype(t);
    const std::size_t n = 4099;
    Random random(31);
    for (int round = 0; round < (sanitized ? 4 : 100); ++round) {
      const float scalar = numeric::widen(from_bits<T>(random.next() & (reference::format_of<T>.infinity() - 1)));
      const std::vector<T> source = random_elements<T>(n, random.next());
      std::vector<T> target(n);
      for (std::size_t i = 0; i < n; ++i) {
        const T product = numeric::narrow<T>(numeric::widen(source[i]) * scalar);
        target[i] = from_bits<T>(bits(product) ^ (random.next() & (random.next() | 0xFFFu)));
      }
      ASSERT_NO_FATAL_FAILURE(compare({Array(target, 0), Array(source, 0)}, [&](Kernels& k, const Addresses& at) { k.fused_accumulate(dtype_of<T>, at[0], at[1], scalar, n); }));
    }
  });
}

TEST_P(elementwise_twins, a_target_may_be_its_own_source) {
  for_each_type([&](auto t) {
    using T = decltype(t);
    constexpr Dtype dtype = dtype_of<T>;
    compare_in_place<T>([](Kernels& k, void* target, const void* source, std::size_t n) { k.accumulate(dtype, target, dtype, source, n); });
    compare_in_place<T>([](Kernels& k, void* target, const void* source, std::size_t n) { k.premultiply(dtype, target, source, 1.0f / 3, n); });
    compare_in_place<T>([](Kernels& k, void* target, const void* source, std::size_t n) { k.fused_accumulate(dtype, target, source, 1.0f / 3, n); });
  });
}

// In a launch, a thread has several packs in flight only in arrays that are longer than the grid by that much.
TEST_P(elementwise_twins, arrays_so_long_that_threads_take_several_packs_at_once) {
  const std::size_t n = other().long_array_elements();
  for_each_type([&](auto t) {
    using T = decltype(t);
    constexpr Dtype dtype = dtype_of<T>;
    const std::vector<Array> arrays = {Array(random_elements<T>(n, 1), 1), Array(random_elements<T>(n, 2), 1), Array(random_elements<float>(n, 3), 0),
                                       Array(std::vector<std::uint8_t>{0}, 0)};
    ASSERT_NO_FATAL_FAILURE(compare(arrays, [&](Kernels& k, const Addresses& at) {
      k.accumulate(dtype, at[0], dtype, at[1], n);
      k.multiply(dtype, at[0], 1.0f / 3, n);
      k.fused_accumulate(dtype, at[0], at[1], 1.0f / 3, n);
      k.accumulate(Dtype::float32, at[2], dtype, at[1], n - 7);
      k.convert(dtype, at[0] + 8 * sizeof(T), Dtype::float32, at[2], n / 2);
      k.unscale(dtype, at[1], 0.5f, n, reinterpret_cast<std::uint8_t*>(at[3]));
      if constexpr (sizeof(T) == 4) k.sgd(reinterpret_cast<float*>(at[0]), reinterpret_cast<float*>(at[1]), 0.003f, 0.01f, n);
    }));
    // Not finite in one place, far behind.
    std::vector<T> finite(n, from_bits<T>(0));
    finite[n - 100] = from_bits<T>(reference::format_of<T>.infinity());
    ASSERT_NO_FATAL_FAILURE(compare({Array(finite, 1), Array(std::vector<std::uint8_t>{0}, 0)},
                                    [&](Kernels& k, const Addresses& at) { k.flag_not_finite(dtype, at[0], n, reinterpret_cast<std::uint8_t*>(at[1])); }));
  });
}

TEST_P(elementwise_twins, maximum_u8_keeps_the_larger_flag) {
  std::vector<std::uint8_t> bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<std::uint8_t>(i * 167));
  for (std::size_t n : lengths())
    for (const auto& [target, source] : offsets())
      compare({Array(cycle(bytes, n), target), Array(cycle(bytes, n, n / 256 + 3), source)}, [&, n = n](Kernels& k, const Addresses& at) { k.maximum_u8(at[0], at[1], n); });
}

TEST_P(elementwise_twins, fill_stores_the_rounded_value_in_every_dtype) {
  for (double value : {0.0, -0.0, 1.0, 1.0 / 3, 65504.0, 65520.0, 0x1p130, -0x1p130, 0x1p-152, static_cast<double>(INFINITY), static_cast<double>(NAN)})
    for (Dtype dtype : {Dtype::float32, Dtype::bfloat16, Dtype::float16, Dtype::float64, Dtype::uint8}) {
      const double stored = dtype == Dtype::uint8 ? 200.0 : value;
      for (std::size_t n : lengths())
        for (std::size_t offset : {0, 1})
          ASSERT_NO_FATAL_FAILURE(
              compare({Array(std::vector<std::byte>(n * size_of(dtype)), offset * size_of(dtype))}, [&](Kernels& k, const Addresses& at) { k.fill(dtype, at[0], stored, n); }));
    }
}

}  // namespace
}  // namespace gradledger::testing
