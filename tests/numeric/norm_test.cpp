// squared_norm against its documented tree, built naively with every lane in place.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "sim/numeric/kernels.h"
#include "tests/numeric/operands.h"

namespace gradledger::testing {
namespace {

using numeric::widen;

// Chunks of 4096: lane l takes elements l, l + 256, ... in order; lanes are halved from 256 to 1; chunk sums are summed likewise.
double tree_of_squares(std::vector<double> terms) {
  constexpr std::size_t chunk = 4096;
  do {
    terms.resize(std::max<std::size_t>((terms.size() + chunk - 1) / chunk, 1) * chunk, 0.0);
    std::vector<double> sums;
    for (std::size_t first = 0; first < terms.size(); first += chunk) {
      std::array<double, 256> lanes{};
      for (std::size_t k = 0; k < chunk; ++k) lanes[k % 256] += terms[first + k];
      for (std::size_t half = 128; half >= 1; half /= 2)
        for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
      sums.push_back(lanes[0]);
    }
    terms = sums;
  } while (terms.size() > 1);
  return terms[0];
}

template <class T>
std::vector<T> random_elements(std::size_t n, std::uint64_t seed) {
  Random random(seed);
  std::vector<T> elements(n);
  const std::uint32_t nan_free = reference::format_of<T>.infinity() - 1;
  for (T& x : elements) x = from_bits<T>((random.next() & nan_free) | (random.next() & reference::format_of<T>.sign_bit()));
  return elements;
}

template <class T>
std::vector<double> squares(const std::vector<T>& elements) {
  std::vector<double> terms;
  for (T x : elements) terms.push_back(static_cast<double>(widen(x)) * static_cast<double>(widen(x)));
  return terms;
}

std::vector<std::size_t> norm_lengths() {
  std::vector<std::size_t> all;
  for (std::size_t n = 0; n <= 33; ++n) all.push_back(n);
  all.insert(all.end(), {255, 256, 257, 511, 4095, 4096, 4097, 3 * 4096 + 17, 300'001});
  return all;
}

template <class T>
void compare_with_tree() {
  std::uint64_t count = 0;
  std::uint64_t order_matters = 0;
  for (std::size_t n : norm_lengths()) {
    const std::vector<T> elements = random_elements<T>(n, 100 + n);
    const std::vector<double> terms = squares(elements);
    ASSERT_EQ(bits(numeric::squared_norm(dtype_of<T>, elements.data(), n)), bits(tree_of_squares(terms))) << n;
    double in_sequence = 0;
    for (double term : terms) in_sequence += term;
    order_matters += bits(in_sequence) != bits(tree_of_squares(terms));
    ++count;
  }
  EXPECT_GT(order_matters, 0u) << "sums in any order agree: the tree is not tested";
  report_count(count, norm_lengths().size());
}

TEST(squared_norm, fp32_sums_over_the_documented_tree) { compare_with_tree<float>(); }
TEST(squared_norm, bf16_sums_over_the_documented_tree) { compare_with_tree<Bf16>(); }
TEST(squared_norm, fp16_sums_over_the_documented_tree) { compare_with_tree<Fp16>(); }

TEST(squared_norm, more_than_4096_chunks_take_a_third_level) {
  const std::size_t n = 4096 * 4096 + 4097;
  const std::vector<Bf16> elements = random_elements<Bf16>(n, 7);
  EXPECT_EQ(bits(numeric::squared_norm(Dtype::bfloat16, elements.data(), n)), bits(tree_of_squares(squares(elements))));
}

TEST(squared_norm, depends_on_the_index_alone) {
  std::uint64_t count = 0;
  for (std::size_t n : norm_lengths()) {
    const std::vector<Bf16> narrow = random_elements<Bf16>(n, n);
    const double expected = numeric::squared_norm(Dtype::bfloat16, narrow.data(), n);
    // The same values stored wider, at another alignment, and with zeros behind.
    std::vector<float> wide(n + 5000, 0.0f);
    for (std::size_t i = 0; i < n; ++i) wide[i + 1] = widen(narrow[i]);
    EXPECT_EQ(bits(numeric::squared_norm(Dtype::float32, wide.data() + 1, n)), bits(expected)) << n;
    EXPECT_EQ(bits(numeric::squared_norm(Dtype::float32, wide.data() + 1, n + 4999)), bits(expected)) << n;
    ++count;
  }
  report_count(count, norm_lengths().size());
}

TEST(squared_norm, infinities_and_nans_reach_the_sum) {
  std::vector<float> elements(5000, 1.0f);
  elements[4998] = -INFINITY;
  EXPECT_EQ(numeric::squared_norm(Dtype::float32, elements.data(), elements.size()), INFINITY);
  elements[3] = NAN;
  EXPECT_TRUE(std::isnan(numeric::squared_norm(Dtype::float32, elements.data(), elements.size())));
}

}  // namespace
}  // namespace gradledger::testing
