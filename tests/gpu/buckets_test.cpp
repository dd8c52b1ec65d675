// Twins of flatten and unflatten: buckets of tensors of every length, more of them than one launch takes.
#include <numeric>

#include "tests/gpu/comparison.h"

namespace gradledger::testing {
namespace {

class bucket_twins : public Twins {
 protected:
  // Tensors lie in slot 0 with `gap` elements between them, the flat buffer in slot 1: there, and back.
  template <class Flat, class T>
  void compare_bucket(const std::vector<std::size_t>& sizes, std::size_t gap, std::size_t flat_offset) {
    const std::size_t n = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    const std::vector<T> tensors = cycle(interesting_values<T>(), n + gap * sizes.size(), sizes.size());
    const std::vector<Flat> flat = cycle(interesting_values<Flat>(), n, 11 * sizes.size());
    const auto places = [&](std::byte* begin) {
      std::vector<Tensor> all;
      for (std::size_t size : sizes) {
        all.push_back({size ? begin : nullptr, size});
        begin += (size + gap) * sizeof(T);
      }
      return all;
    };
    const std::vector<Array> arrays = {Array(tensors, 1), Array(flat, flat_offset)};
    ASSERT_NO_FATAL_FAILURE(compare(arrays, [&](Kernels& k, const Addresses& at) { k.flatten(dtype_of<Flat>, at[1], dtype_of<T>, places(at[0])); }));
    ASSERT_NO_FATAL_FAILURE(compare(arrays, [&](Kernels& k, const Addresses& at) { k.unflatten(dtype_of<T>, places(at[0]), dtype_of<Flat>, at[1]); }));
  }

  // Every pair of dtypes, every misalignment of the flat buffer that vectors know.
  void compare_buckets(const std::vector<std::size_t>& sizes) {
    for (std::size_t gap : {0, 3})
      for (std::size_t offset : {0, 1, 5}) {
        SCOPED_TRACE(::testing::Message() << sizes.size() << " tensors, gap " << gap << ", offset " << offset);
        of_flat<float>(sizes, gap, offset);
        of_flat<Bf16>(sizes, gap, offset);
        of_flat<Fp16>(sizes, gap, offset);
      }
  }

 private:
  template <class Flat>
  void of_flat(const std::vector<std::size_t>& sizes, std::size_t gap, std::size_t offset) {
    ASSERT_NO_FATAL_FAILURE((compare_bucket<Flat, float>(sizes, gap, offset)));
    ASSERT_NO_FATAL_FAILURE((compare_bucket<Flat, Bf16>(sizes, gap, offset)));
    ASSERT_NO_FATAL_FAILURE((compare_bucket<Flat, Fp16>(sizes, gap, offset)));
  }
};
INSTANTIATE_TEST_SUITE_P(all, bucket_twins, ::testing::ValuesIn(implementations_under_test()), implementation_name);

TEST_P(bucket_twins, one_tensor_of_every_length) {
  for (std::size_t n : lengths()) compare_buckets({n});
}

TEST_P(bucket_twins, tensors_of_all_lengths_in_one_bucket) { compare_buckets(lengths()); }

// A launch takes 127: one less, as many, one more, several launches; empty tensors take no place in them.
TEST_P(bucket_twins, more_tensors_than_the_arguments_of_a_launch_hold) {
  for (std::size_t count : {0, 1, 126, 127, 128, 254, 255, 400}) {
    std::vector<std::size_t> sizes;
    for (std::size_t k = 0; k < count; ++k) {
      sizes.push_back(1 + k * 7 % 40);
      if (k % 50 == 0) sizes.push_back(0);
    }
    compare_buckets(sizes);
  }
}

// Blocks of 2048 units: tensors that end just before, at and after the border of a block.
TEST_P(bucket_twins, tensors_of_several_blocks) {
  if (sanitized) compare_buckets({16'384, 2047});
  else compare_buckets({8191, 8192, 8193, 16'384, 16'385, 2047, 2048, 2049, 40'000});
}

}  // namespace
}  // namespace gradledger::testing
