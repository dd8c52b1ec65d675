// Twins of the comparison of two arrays, and what it finds where the answer is known.
#include <cmath>
#include <limits>

#include "sim/numeric/difference.h"
#include "tests/gpu/comparison.h"

namespace gradledger::testing {
namespace {

using numeric::Difference;

class difference_twins : public Twins {
 protected:
  // Slots: a, b, bounds where there are any, result. The result starts as rubbish.
  template <class T>
  Difference find(const std::vector<T>& a, const std::vector<T>& b, const std::vector<float>* bounds = nullptr, std::size_t offset_a = 0, std::size_t offset_b = 0) {
    const std::size_t n = a.size() - 1;  // the last element lies outside
    std::vector<Array> arrays = {Array(a, offset_a), Array(b, offset_b), Array(std::vector<Difference>{{5, 5, 5, 5}}, 0)};
    if (bounds) arrays.push_back(Array(*bounds, offset_a));
    compare(arrays, [&](Kernels& k, const Addresses& at) {
      k.difference(dtype_of<T>, at[0], at[1], bounds ? reinterpret_cast<float*>(at[3]) : nullptr, n, reinterpret_cast<Difference*>(at[2]));
    });
    std::vector<std::byte> bytes = arrays[2].bytes();
    other().read(2, bytes);
    Difference found;
    std::memcpy(&found, bytes.data() + arrays[2].begin(), sizeof(found));
    return found;
  }
  Difference of_one(float a, float b) { return find<float>({a, 1}, {b, 2}); }
};
INSTANTIATE_TEST_SUITE_P(all, difference_twins, ::testing::ValuesIn(implementations_under_test()), implementation_name);

TEST_P(difference_twins, arrays_of_every_value_differ_as_on_the_host) {
  const std::vector<float> limits = interesting_values<float>();
  for_each_type([&](auto t) {
    using T = decltype(t);
    const std::vector<T> values = interesting_values<T>();
    for (std::size_t n : lengths())
      for (const auto& [a, b] : offsets()) {
        std::vector<T> left = cycle(values, n + 1, n);
        std::vector<T> right = left;
        for (std::size_t i = n % 3; i < n; i += 1 + i % 5) right[i] = values[(7 * i + n) % values.size()];
        const std::vector<float> bounds = cycle(limits, n + 1, 3 * n);
        ASSERT_NO_FATAL_FAILURE(find(left, right, nullptr, a, b)) << "length " << n;
        ASSERT_NO_FATAL_FAILURE(find(left, right, &bounds, a, b)) << "length " << n;
        ASSERT_EQ(find(left, left, &bounds, a, b), numeric::no_difference) << "length " << n;
      }
  });
}

TEST_P(difference_twins, all_pairs_of_values_and_many_random_ones) {
  for_each_type([&](auto t) {
    using T = decltype(t);
    const std::vector<T> values = interesting_values<T>();
    std::vector<T> left;
    for (T x : values) left.insert(left.end(), values.size(), x);
    find(left, cycle(values, left.size()));
    const std::size_t n = sanitized ? 30'001 : 300'001;
    const std::vector<float> bounds = random_elements<float>(n, 3);
    find(random_elements<T>(n, 1), random_elements<T>(n, 2), &bounds);
  });
}

TEST_P(difference_twins, the_first_of_several_and_the_largest_distance_are_found_at_any_position) {
  for (std::size_t n : lengths())
    for (std::size_t position = 0; position < n; position += n < 100 ? 1 : 509) {
      std::vector<float> a(n + 1, 1.0f);
      std::vector<float> b = a;
      b[n] = 100.0f;
      b[position] = 1.5f;
      b[n - 1] = -2.0f;
      const std::vector<float> bounds(n + 1, 1.0f);
      const Difference expected{position == n - 1 ? 1u : 2u, position, bits(3.0), 1};
      ASSERT_EQ(find(a, b, &bounds, 1, 1), expected) << "length " << n << ", position " << position;
    }
}

TEST_P(difference_twins, nan_differs_from_all_but_its_own_bits_and_by_more_than_any_number) {
  const float nan = from_bits<float>(0x7FC00000u);
  const float other_nan = from_bits<float>(0xFFC00001u);
  EXPECT_EQ(of_one(nan, nan), numeric::no_difference);
  for (const auto& [a, b] : {std::pair{nan, other_nan}, {nan, 1.0f}, {-INFINITY, nan}}) {
    const Difference found = of_one(a, b);
    EXPECT_EQ(found.differing, 1u);
    EXPECT_TRUE(std::isnan(found.largest_distance()));
  }
  const Difference mixed = find<float>({1.0f, nan, INFINITY, 0}, {2.0f, 3.0f, 0.0f, 0});
  EXPECT_TRUE(std::isnan(mixed.largest_distance())) << "the distance of infinities is less";
}

TEST_P(difference_twins, zeros_of_both_signs_differ_by_nothing_and_infinities_by_infinity) {
  EXPECT_EQ(of_one(0.0f, -0.0f), (Difference{1, 0, 0, 0}));
  EXPECT_EQ(of_one(INFINITY, INFINITY), numeric::no_difference);
  EXPECT_EQ(of_one(INFINITY, -INFINITY).largest_distance(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(of_one(0x1p127f, -0x1p127f).largest_distance(), 0x1p128) << "beyond fp32, not beyond fp64";
  EXPECT_EQ(of_one(0.0f, 0x1p-149f).largest_distance(), 0x1p-149);
}

TEST_P(difference_twins, what_equals_its_bound_is_within_and_a_nan_bound_holds_nothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto beyond = [&](float a, float b, float bound) {
    const std::vector<float> bounds = {bound, 0};
    return find<float>({a, 0}, {b, 0}, &bounds).beyond;
  };
  EXPECT_EQ(beyond(1.0f, 1.5f, 0.5f), 0u);
  EXPECT_EQ(beyond(1.0f, 1.5f, std::nextafter(0.5f, 0.0f)), 1u);
  EXPECT_EQ(beyond(0.0f, -0.0f, 0.0f), 0u);
  EXPECT_EQ(beyond(0.0f, -0.0f, -1.0f), 1u);
  EXPECT_EQ(beyond(1.0f, INFINITY, INFINITY), 0u);
  EXPECT_EQ(beyond(1.0f, nan, INFINITY), 1u);
  EXPECT_EQ(beyond(1.0f, 1.5f, nan), 1u);
  EXPECT_EQ(beyond(1.0f, 1.0f, nan), 0u) << "bits agree";
}

}  // namespace
}  // namespace gradledger::testing
