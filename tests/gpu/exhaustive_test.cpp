// The arithmetic of the 16-bit types on all pairs of values and their rounding from all fp32 values, in rows of 2^16. How many rows
// are run depends on how fast the implementation is (Kernels::rows_step); GRADLEDGER_EXHAUSTIVE=full runs all of them on a device.
#include <atomic>
#include <functional>
#include <thread>

#include "tests/gpu/comparison.h"

namespace gradledger::testing {
namespace {

constexpr std::size_t row_elements = 1 << 16;
constexpr std::size_t rows_per_batch = 64;

// One row in every step, all low digits in turn.
std::vector<std::size_t> rows_of_step(std::size_t step) {
  std::vector<std::size_t> rows;
  for (std::size_t k = 0; k * step < row_elements; ++k)
    if (const std::size_t row = k * step + k % step; row < row_elements) rows.push_back(row);
  return rows;
}

// body(0) .. body(count - 1) on the host's threads.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) body(i);
  };
  std::vector<std::thread> threads(std::min<std::size_t>(std::max(1u, std::thread::hardware_concurrency()), 16) - 1);
  for (std::thread& thread : threads) thread = std::thread(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

class exhaustive_twins : public Twins {
 protected:
  // call(kernels, target, source, row) for each row, after fill(target, source, row); the targets are compared.
  template <class T, class S, class Fill, class Call>
  void compare_rows(Fill&& fill, Call&& call) {
    const std::vector<std::size_t> rows = rows_of_step(other().rows_step());
    for (std::size_t first = 0; first < rows.size(); first += rows_per_batch)
      ASSERT_NO_FATAL_FAILURE((compare_batch<T, S>({rows.begin() + first, rows.begin() + std::min(rows.size(), first + rows_per_batch)}, fill, call)));
    RecordProperty("rows", std::to_string(rows.size()));
  }

  // The rows are one operand and the elements of a row the other.
  template <class T>
  void sums() {
    compare_rows<T, T>([](T* target, T* source, std::size_t row) { fill_pairs(target, source, row); },
                       [](Kernels& k, T* target, T* source, std::size_t) { k.accumulate(dtype_of<T>, target, dtype_of<T>, source, row_elements); });
  }
  template <class T>
  void products() {
    compare_rows<T, T>([](T* target, T* source, std::size_t row) { fill_pairs(target, source, row); },
                       [](Kernels& k, T* target, T* source, std::size_t row) { k.premultiply(dtype_of<T>, target, source, scalar<T>(row), row_elements); });
  }
  template <class T>
  void quotients() {
    compare_rows<T, T>([](T* target, T* source, std::size_t row) { fill_pairs(source, target, row); },
                       [](Kernels& k, T* target, T*, std::size_t row) { k.divide(dtype_of<T>, target, scalar<T>(row), row_elements); });
  }
  // The addend is one value in a row at even elements; at odd ones it is near the product, where single rounding is hard.
  template <class T>
  void fused_products() {
    const auto fill = [](T* target, T* source, std::size_t row) {
      const T a = from_bits<T>(row);
      const std::uint64_t hash = Random(row).next();
      for (std::size_t i = 0; i < row_elements; ++i) {
        source[i] = from_bits<T>(i);
        target[i] = i % 2 ? from_bits<T>(bits(numeric::mul(a, source[i])) ^ ((hash >> (i / 2 % 32)) & 0x83FFu)) : from_bits<T>(hash);
      }
    };
    compare_rows<T, T>(fill, [](Kernels& k, T* target, T* source, std::size_t row) { k.fused_accumulate(dtype_of<T>, target, source, scalar<T>(row), row_elements); });
  }
  // The row is the upper half of the fp32 value.
  template <class T>
  void roundings() {
    const auto fill = [](T* target, float* source, std::size_t row) {
      for (std::size_t i = 0; i < row_elements; ++i) source[i] = from_bits<float>(row << 16 | i);
      std::fill_n(target, row_elements, T{});
    };
    compare_rows<T, float>(fill, [](Kernels& k, T* target, float* source, std::size_t) { k.convert(dtype_of<T>, target, Dtype::float32, source, row_elements); });
  }
  template <class S, class T>
  void convert_every_value() {
    std::vector<S> values(row_elements);
    for (std::size_t i = 0; i < row_elements; ++i) values[i] = from_bits<S>(i);
    compare({Array(std::vector<T>(row_elements), 0), Array(values, 0)}, [&](Kernels& k, const Addresses& at) { k.convert(dtype_of<T>, at[0], dtype_of<S>, at[1], row_elements); });
  }

 private:
  template <class T>
  static float scalar(std::size_t row) {
    return numeric::widen(from_bits<T>(row));
  }
  template <class T>
  static void fill_pairs(T* constant, T* every, std::size_t row) {
    for (std::size_t i = 0; i < row_elements; ++i) {
      constant[i] = from_bits<T>(row);
      every[i] = from_bits<T>(i);
    }
  }

  template <class T, class S, class Fill, class Call>
  void compare_batch(const std::vector<std::size_t>& rows, Fill&& fill, Call&& call) {
    constexpr std::size_t target_bytes = row_elements * sizeof(T);
    constexpr std::size_t source_bytes = row_elements * sizeof(S);
    std::vector<std::byte> targets(rows.size() * target_bytes);
    std::vector<std::byte> sources(rows.size() * source_bytes);
    const auto target_of = [&](std::byte* begin, std::size_t r) { return reinterpret_cast<T*>(begin + r * target_bytes); };
    const auto source_of = [&](std::byte* begin, std::size_t r) { return reinterpret_cast<S*>(begin + r * source_bytes); };
    in_parallel(rows.size(), [&](std::size_t r) { fill(target_of(targets.data(), r), source_of(sources.data(), r), rows[r]); });

    std::byte* other_targets = other().place(0, targets);
    std::byte* other_sources = other().place(1, sources);
    for (std::size_t r = 0; r < rows.size(); ++r) call(other(), target_of(other_targets, r), source_of(other_sources, r), rows[r]);
    in_parallel(rows.size(), [&](std::size_t r) { call(host(), target_of(targets.data(), r), source_of(sources.data(), r), rows[r]); });

    std::vector<std::byte> observed(targets.size());
    other().read(0, observed);
    std::atomic<std::size_t> different = rows.size();
    in_parallel(rows.size(), [&](std::size_t r) {
      if (std::memcmp(observed.data() + r * target_bytes, targets.data() + r * target_bytes, target_bytes) != 0) different = r;
    });
    count_compared(targets.size());
    if (different == rows.size()) return;
    const T* expected = target_of(targets.data(), different);
    const T* found = target_of(observed.data(), different);
    std::size_t i = 0;
    while (bits(expected[i]) == bits(found[i])) ++i;
    FAIL() << std::hex << "row " << rows[different] << ", element " << i << ": " << bits(found[i]) << " where the host has " << bits(expected[i]);
  }
};
INSTANTIATE_TEST_SUITE_P(all, exhaustive_twins, ::testing::ValuesIn(implementations_under_test()), implementation_name);

TEST_P(exhaustive_twins, every_bf16_sum) { sums<Bf16>(); }
TEST_P(exhaustive_twins, every_fp16_sum) { sums<Fp16>(); }
TEST_P(exhaustive_twins, every_bf16_product) { products<Bf16>(); }
TEST_P(exhaustive_twins, every_fp16_product) { products<Fp16>(); }
TEST_P(exhaustive_twins, every_bf16_quotient) { quotients<Bf16>(); }
TEST_P(exhaustive_twins, every_fp16_quotient) { quotients<Fp16>(); }
TEST_P(exhaustive_twins, every_pair_of_bf16_factors_in_a_fused_multiply_add) { fused_products<Bf16>(); }
TEST_P(exhaustive_twins, every_pair_of_fp16_factors_in_a_fused_multiply_add) { fused_products<Fp16>(); }
TEST_P(exhaustive_twins, every_fp32_value_rounded_to_bf16) { roundings<Bf16>(); }
TEST_P(exhaustive_twins, every_fp32_value_rounded_to_fp16) { roundings<Fp16>(); }

TEST_P(exhaustive_twins, every_16_bit_value_converted) {
  convert_every_value<Bf16, float>();
  convert_every_value<Bf16, Fp16>();
  convert_every_value<Bf16, double>();
  convert_every_value<Fp16, float>();
  convert_every_value<Fp16, Bf16>();
  convert_every_value<Fp16, double>();
}

// fp32 values whose upper half is every value and whose lower half is about the ties of either 16-bit type.
TEST_P(exhaustive_twins, every_upper_half_of_fp32_narrowed_near_its_ties) {
  for (std::uint32_t low : {0x0000u, 0x0001u, 0x0FFFu, 0x1000u, 0x1001u, 0x2FFFu, 0x3000u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
    std::vector<float> source(row_elements);
    for (std::size_t i = 0; i < row_elements; ++i) source[i] = from_bits<float>(i << 16 | low);
    for (Dtype dtype : {Dtype::bfloat16, Dtype::float16})
      compare({Array(std::vector<Bf16>(row_elements), 0), Array(source, 0)},
              [&](Kernels& k, const Addresses& at) { k.convert(dtype, at[0], Dtype::float32, at[1], row_elements); });
  }
}

TEST(exhaustive_rows, are_all_of_them_in_steps_of_one_and_have_every_low_digit_in_steps_of_sixteen) {
  EXPECT_EQ(rows_of_step(1).size(), row_elements);
  const std::vector<std::size_t> sixteenth = rows_of_step(16);
  EXPECT_EQ(sixteenth.size(), row_elements / 16);
  for (std::size_t k = 0; k < sixteenth.size(); ++k) EXPECT_EQ(sixteenth[k] % 16, k % 16);
}

}  // namespace
}  // namespace gradledger::testing
