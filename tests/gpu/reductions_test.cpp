// Twins of the reductions: the norm's tree and the search for infinities.
#include <cmath>

#include "tests/gpu/comparison.h"

namespace gradledger::testing {
namespace {

using reduction_twins = Twins;
INSTANTIATE_TEST_SUITE_P(all, reduction_twins, ::testing::ValuesIn(implementations_under_test()), implementation_name);

template <class T>
std::vector<Array> norm_arrays(std::size_t n, std::size_t offset) {
  return {Array(random_elements<T>(n, 100 + n, true), offset), Array(std::vector<double>{-1.0}, 0)};
}

void norm_of(Dtype dtype, std::size_t n, Kernels& k, const Addresses& at) { k.squared_norm(dtype, at[0], n, reinterpret_cast<double*>(at[1])); }

TEST_P(reduction_twins, squared_norm_sums_over_the_same_tree) {
  std::vector<std::size_t> all = lengths();
  all.insert(all.end(), {511, 3 * 4096 + 17, 300'001});
  for (std::size_t n : all)
    for (std::size_t offset : {0, 1, 5}) {
      SCOPED_TRACE(n);
      compare(norm_arrays<float>(n, offset), [&](Kernels& k, const Addresses& at) { norm_of(Dtype::float32, n, k, at); });
      compare(norm_arrays<Bf16>(n, offset), [&](Kernels& k, const Addresses& at) { norm_of(Dtype::bfloat16, n, k, at); });
      compare(norm_arrays<Fp16>(n, offset), [&](Kernels& k, const Addresses& at) { norm_of(Dtype::float16, n, k, at); });
    }
}

TEST_P(reduction_twins, squared_norm_of_more_than_4096_chunks_takes_a_third_level) {
  const std::size_t n = 4096 * 4096 + 4097;
  compare(norm_arrays<Bf16>(n, 1), [&](Kernels& k, const Addresses& at) { norm_of(Dtype::bfloat16, n, k, at); });
}

TEST_P(reduction_twins, squared_norm_of_an_infinity_is_infinite) {
  for (std::size_t at_index : {0, 4095, 4096, 9999}) {
    std::vector<float> elements(10'000, 0.5f);
    elements[at_index] = -INFINITY;
    compare({Array(elements, 1), Array(std::vector<double>{-1.0}, 0)}, [&](Kernels& k, const Addresses& at) { norm_of(Dtype::float32, 10'000, k, at); });
  }
}

// The payload of an fp64 NaN is the processor's: that it is one must be equal.
TEST_P(reduction_twins, a_nan_makes_the_norm_and_the_fp64_total_nan) {
  std::vector<float> elements(5000, 1.0f);
  elements[4999] = NAN;
  compare({Array(elements, 0), Array(std::vector<double>{-1.0}, 0)}, [&](Kernels& k, const Addresses& at) { norm_of(Dtype::float32, 4999, k, at); });
  std::vector<std::byte> result = Array(std::vector<double>{-1.0}, 0).bytes();
  std::byte* source = other().place(0, Array(elements, 0).bytes());
  std::byte* target = other().place(1, result);
  const std::size_t margin = Array::margin_bytes;
  other().squared_norm(Dtype::float32, source + margin, 5000, reinterpret_cast<double*>(target + margin));
  other().accumulate(Dtype::float64, target + margin, Dtype::float64, target + margin, 1);
  other().read(1, result);
  double norm = 0;
  std::memcpy(&norm, result.data() + margin, sizeof(norm));
  EXPECT_NE(norm, norm);
}

// Finite values only; then one infinity or NaN at each position in turn; and one just outside, which must not be seen.
template <class T>
std::vector<std::vector<T>> searched_arrays(std::size_t n) {
  std::vector<T> finite;
  std::vector<T> others;
  for (T x : interesting_values<T>()) (std::isfinite(numeric::widen(x)) ? finite : others).push_back(x);
  std::vector<std::vector<T>> arrays = {cycle(finite, n + 1)};
  arrays[0][n] = others[0];
  for (std::size_t at = 0; at < n; at += n < 100 ? 1 : 509) {
    arrays.push_back(arrays[0]);
    arrays.back()[at] = others[at % others.size()];
  }
  return arrays;
}

TEST_P(reduction_twins, flag_not_finite_sees_one_infinity_or_nan_at_any_position) {
  const auto search = [&](Dtype dtype, const auto& elements, std::size_t offset, std::uint8_t flag) {
    compare({Array(elements, offset), Array(std::vector<std::uint8_t>{flag}, 0)},
            [&](Kernels& k, const Addresses& at) { k.flag_not_finite(dtype, at[0], elements.size() - 1, reinterpret_cast<std::uint8_t*>(at[1])); });
  };
  for (std::size_t n : lengths())
    for (std::size_t offset : {0, 1}) {
      SCOPED_TRACE(n);
      for (const std::vector<float>& elements : searched_arrays<float>(n)) {
        search(Dtype::float32, elements, offset, 0);
        search(Dtype::float64, std::vector<double>(elements.begin(), elements.end()), offset, 0);
      }
      for (const std::vector<Bf16>& elements : searched_arrays<Bf16>(n)) search(Dtype::bfloat16, elements, offset, 0);
      for (const std::vector<Fp16>& elements : searched_arrays<Fp16>(n)) search(Dtype::float16, elements, offset, 0);
    }
  search(Dtype::float32, std::vector<float>(100, 1.0f), 0, 7);  // a flag that stands is left alone
}

}  // namespace
}  // namespace gradledger::testing
