// All values of the 16-bit types; all pairs of them where the implementation is fast enough (Kernels::rows_step).
#include "tests/gpu/comparison.h"

namespace gradledger::testing {
namespace {

constexpr std::size_t value_count = 1 << 16;

template <class T>
std::vector<T> every_value() {
  std::vector<T> values(value_count);
  for (std::size_t i = 0; i < value_count; ++i) values[i] = from_bits<T>(i);
  return values;
}

class exhaustive_twins : public Twins {
 protected:
  // call(kernels, target, source, scalar) for each value as the scalar: the target holds it everywhere, the source every value.
  template <class T, class Call>
  void for_each_pair(Call&& call) {
    const Array source(every_value<T>(), 0);
    for (std::size_t row = 0; row < value_count; row += other().rows_step()) {
      const T scalar = from_bits<T>(row);
      ASSERT_NO_FATAL_FAILURE(compare({Array(std::vector<T>(value_count, scalar), 0), source},
                                      [&](Kernels& k, const Addresses& at) { call(k, at[0], at[1], numeric::widen(scalar)); }))
          << "row " << row;
    }
  }
  template <class T>
  void sums() {
    for_each_pair<T>([](Kernels& k, void* target, void* source, float) { k.accumulate(dtype_of<T>, target, dtype_of<T>, source, value_count); });
  }
  template <class T>
  void products() {
    for_each_pair<T>([](Kernels& k, void* target, void* source, float scalar) { k.premultiply(dtype_of<T>, target, source, scalar, value_count); });
  }
  template <class T>
  void quotients() {
    for_each_pair<T>([](Kernels& k, void*, void* source, float scalar) { k.divide(dtype_of<T>, source, scalar, value_count); });
  }
  template <class S, class T>
  void convert_every_value() {
    compare({Array(std::vector<T>(value_count), 0), Array(every_value<S>(), 0)},
            [&](Kernels& k, const Addresses& at) { k.convert(dtype_of<T>, at[0], dtype_of<S>, at[1], value_count); });
  }
};
INSTANTIATE_TEST_SUITE_P(all, exhaustive_twins, ::testing::ValuesIn(implementations_under_test()), implementation_name);

TEST_P(exhaustive_twins, every_bf16_sum) { sums<Bf16>(); }
TEST_P(exhaustive_twins, every_fp16_sum) { sums<Fp16>(); }
TEST_P(exhaustive_twins, every_bf16_product) { products<Bf16>(); }
TEST_P(exhaustive_twins, every_fp16_product) { products<Fp16>(); }
TEST_P(exhaustive_twins, every_bf16_quotient) { quotients<Bf16>(); }
TEST_P(exhaustive_twins, every_fp16_quotient) { quotients<Fp16>(); }

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
    std::vector<float> source(value_count);
    for (std::size_t i = 0; i < value_count; ++i) source[i] = from_bits<float>(i << 16 | low);
    for (Dtype dtype : {Dtype::bfloat16, Dtype::float16})
      compare({Array(std::vector<Bf16>(value_count), 0), Array(source, 0)},
              [&](Kernels& k, const Addresses& at) { k.convert(dtype, at[0], Dtype::float32, at[1], value_count); });
  }
}

}  // namespace
}  // namespace gradledger::testing
