// Twins of the fused passes: against the host, and against the passes that they replace.
#include <bit>
#include <cmath>

#include "tests/gpu/comparison.h"
#include "tests/gpu/optimizer_states.h"

namespace gradledger::testing {
namespace {

class fused_twins : public Twins {
 protected:
  template <class Call>
  void compare_with_factors(Call&& call);
};
INSTANTIATE_TEST_SUITE_P(all, fused_twins, ::testing::ValuesIn(implementations_under_test()), implementation_name);

const float factors[] = {1.0f, 0.5f, 1.0f / 3, 0x1p-16f, 0x1.8p127f, 0x1p-149f, 0.0f, -0.0f, INFINITY, NAN};

double* doubles(std::byte* address) { return reinterpret_cast<double*>(address); }
std::uint8_t* flag_at(std::byte* address) { return reinterpret_cast<std::uint8_t*>(address); }
Array flag_array(std::uint8_t flag = 0) { return Array(std::vector<std::uint8_t>{flag}, 0); }
Array one_float(float x) { return Array(std::vector<float>{x}, 0); }
Array one_double(double x) { return Array(std::vector<double>{x}, 0); }

// call(kernels, dtype, addresses of elements, factor and flag, factor, n) with every type, factor and length.
template <class Call>
void fused_twins::compare_with_factors(Call&& call) {
  for_each_type([&](auto t) {
    using T = decltype(t);
    const std::vector<T> values = interesting_values<T>();
    for (float factor : factors)
      for (std::size_t n : lengths())
        for (std::size_t offset : {0, 1})
          ASSERT_NO_FATAL_FAILURE(
              compare({Array(cycle(values, n, 5 * n), offset), one_float(factor), flag_array()}, [&](Kernels& k, const Addresses& at) { call(k, dtype_of<T>, at, factor, n); }))
              << "length " << n << ", factor " << factor;
  });
}

TEST_P(fused_twins, unscale_multiplies_and_flags_every_kind_of_input) {
  compare_with_factors([](Kernels& k, Dtype dtype, const Addresses& at, float factor, std::size_t n) { k.unscale(dtype, at[0], factor, n, flag_at(at[2])); });
}

TEST_P(fused_twins, multiply_by_a_stored_factor_is_multiply) {
  compare_with_factors([](Kernels& k, Dtype dtype, const Addresses& at, float, std::size_t n) { k.multiply_by_stored(dtype, at[0], floats(at[1]), n); });
}

// An input that is finite and overflows when scaled is not flagged; a NaN or infinity is, wherever it stands.
TEST_P(fused_twins, unscale_flags_its_input_and_not_its_output) {
  const auto flag_of = [&](std::vector<float> elements, float factor) {
    std::vector<std::byte> flag = flag_array().bytes();
    const Array array(elements, 1);
    std::byte* target = other().place(0, array.bytes());
    std::byte* at = other().place(1, flag);
    other().unscale(Dtype::float32, target + array.begin(), factor, elements.size(), flag_at(at + Array::margin_bytes));
    other().read(1, flag);
    return std::to_integer<int>(flag[Array::margin_bytes]);
  };
  EXPECT_EQ(flag_of(std::vector<float>(100, 0x1p127f), 4.0f), 0);
  EXPECT_EQ(flag_of({}, NAN), 0);
  for (std::size_t position : {0, 1, 63, 98, 99})
    for (float special : {INFINITY, -INFINITY, NAN}) {
      std::vector<float> elements(100, 1.0f);
      elements[position] = special;
      EXPECT_EQ(flag_of(elements, 0.0f), 1) << position;
    }
  compare({Array(std::vector<float>(9, 1.0f), 0), flag_array(7)}, [&](Kernels& k, const Addresses& at) { k.unscale(Dtype::float32, at[0], 2.0f, 9, flag_at(at[1])); });
}

const double squared_norms[] = {0.0, 0x1p-1074, 0x1p-298, 1e-12 /* no tolerance: an operand */, 0.25, 1.0, 2.0, 3.0, 1e10, 0x1p254, 0x1p1000, INFINITY, NAN};
const double scales[] = {1.0, 3.0, 65536.0, 0x1p24, 0x1p-20, 0.1};  // with 2^24 the guard outweighs the -1 of a norm that is not finite
const double clips[] = {0.0, -1.0, 0x1p-30, 0.1, 1.0, 2.5, 1e30};

TEST_P(fused_twins, factors_of_a_norm_are_those_of_the_engines) {
  for (double squared : squared_norms)
    for (double clip : clips) {
      ASSERT_NO_FATAL_FAILURE(compare({one_double(squared), one_float(-1)}, [&](Kernels& k, const Addresses& at) { k.clip_coefficient(doubles(at[0]), clip, floats(at[1])); }))
          << squared << ", clip " << clip;
      for (double scale : scales)
        ASSERT_NO_FATAL_FAILURE(
            compare({one_double(squared), one_float(-1)}, [&](Kernels& k, const Addresses& at) { k.combined_factor(doubles(at[0]), scale, clip, floats(at[1])); }))
            << squared << ", scale " << scale << ", clip " << clip;
    }
}

// Two arrays whose sums are finite: an infinite norm would say nothing about the tree.
template <class T, class S>
std::pair<std::vector<T>, std::vector<S>> finite_terms(std::size_t n) {
  std::vector<T> targets = random_elements<T>(n, n, true);
  std::vector<S> sources(n);
  const std::vector<T> in_range = random_elements<T>(n, n + 1, true);
  const std::vector<S> wide = random_elements<S>(n, n + 2, true);
  for (std::size_t i = 0; i < n; ++i) {
    sources[i] = std::is_same_v<T, Fp16> ? numeric::narrow<S>(numeric::widen(in_range[i])) : wide[i];
    const float sum = numeric::widen(numeric::narrow<T>(numeric::widen(targets[i]) + numeric::widen(sources[i])));
    if (!std::isfinite(sum)) targets[i] = T{};
  }
  return {targets, sources};
}

TEST_P(fused_twins, accumulate_with_norm_sums_over_the_tree_of_squared_norm) {
  std::vector<std::size_t> all = lengths();
  all.insert(all.end(), {3 * 4096 + 17, 300'001});
  for_each_type([&](auto t) {
    for_each_type([&](auto s) {
      using T = decltype(t);
      using S = decltype(s);
      for (float factor : {1.0f, 1.0f / 3})
        for (std::size_t n : all)
          for (const auto& [target, source] : offsets()) {
            if (n > 4097 && target != source) continue;
            const auto call = [&, n = n](Kernels& k, const Addresses& at) {
              k.accumulate_with_norm(dtype_of<T>, at[0], dtype_of<S>, at[1], factor, n, doubles(at[2]), flag_at(at[3]));
            };
            const auto& [targets, sources] = finite_terms<T, S>(n);
            ASSERT_NO_FATAL_FAILURE(compare({Array(targets, target), Array(sources, source), one_double(-1), flag_array()}, call)) << "length " << n;
          }
    });
  });
}

TEST_P(fused_twins, accumulate_with_norm_has_the_bits_of_accumulate_and_squared_norm) {
  for (std::size_t n : {0, 1, 33, 4095, 4096, 4097, 50'001})
    for_each_type([&](auto t) {
      using T = decltype(t);
      constexpr Dtype dtype = dtype_of<T>;
      const auto& [targets, sources] = finite_terms<T, Bf16>(n);
      const Array target(targets, 1);
      const Array source(sources, 0);
      const auto call = [&](Kernels& k, const Addresses& at) {
        k.accumulate_with_norm(dtype, at[0], Dtype::bfloat16, at[2], 1.0f, n, doubles(at[3]), flag_at(at[5]));
        k.accumulate(dtype, at[1], Dtype::bfloat16, at[2], n);
        k.squared_norm(dtype, at[1], n, doubles(at[4]));
      };
      ASSERT_NO_FATAL_FAILURE(compare({target, target, source, one_double(-1), one_double(-2), flag_array()}, call));
      ASSERT_NO_FATAL_FAILURE(expect_equal_slots(0, 1));
      ASSERT_NO_FATAL_FAILURE(expect_equal_slots(3, 4));
    });
}

// The sum is what is flagged: two large finite terms, opposite infinities, and nothing beside the array.
TEST_P(fused_twins, accumulate_with_norm_flags_a_sum_that_is_not_finite_at_any_position) {
  for (std::size_t n : {1, 33, 4096, 4097, 9000})
    for (std::size_t position : {std::size_t{0}, n / 2, n - 1, n})
      for (const auto& [a, b, flagged] : {std::tuple{0x1.8p127f, 0x1.8p127f, 1}, {INFINITY, 1.0f, 1}, {0x1p127f, -0x1p127f, 0}}) {
        std::vector<float> targets(n + 1, 1.0f);
        std::vector<float> sources(n + 1, 2.0f);
        targets[position] = a;
        sources[position] = b;
        const std::vector<Array> arrays = {Array(targets, 0), Array(sources, 1), one_double(-1), flag_array()};
        const auto call = [&](Kernels& k, const Addresses& at) { k.accumulate_with_norm(Dtype::float32, at[0], Dtype::float32, at[1], 1.0f, n, doubles(at[2]), flag_at(at[3])); };
        ASSERT_NO_FATAL_FAILURE(compare(arrays, call)) << "length " << n << ", position " << position;
        std::vector<std::byte> flag = arrays[3].bytes();
        other().read(3, flag);
        EXPECT_EQ(std::to_integer<int>(flag[Array::margin_bytes]), position < n ? flagged : 0);
      }
}

// ---- mixed Adam ------------------------------------------------------------------------------------------------------------------

numeric::MixedAdamCall mixed(Dtype gradient, Dtype output, const Addresses& at, bool cpu_formula = false) {
  return {floats(at[0]), floats(at[2]), floats(at[3]), gradient, at[1], output, at[4], cpu_formula};
}

TEST_P(fused_twins, adam_mixed_takes_every_gradient_and_writes_either_output_by_either_formula) {
  for_each_type([&](auto g) {
    using G = decltype(g);
    for (Dtype output : {Dtype::bfloat16, Dtype::float16})
      for (const auto& [adversarial, coefficient] : {std::pair{true, 1.0f}, {false, 0.3f}, {false, NAN}})
        for (std::size_t n : lengths())
          for (const auto& [offset, gradient_offset] : offsets()) {
            if (n > 4097 && (offset != 0 || coefficient != 1.0f)) continue;
            std::vector<Array> arrays = state_of(n, adversarial, 0, offset);
            arrays[1] = Array(cycle(interesting_values<G>(), n, 3 * n), gradient_offset);
            arrays.push_back(Array(std::vector<Bf16>(n), offset));
            arrays.push_back(one_float(coefficient));
            ASSERT_NO_FATAL_FAILURE(compare(arrays,
                                            [&, n = n, decoupled = adversarial](Kernels& k, const Addresses& at) {
                                              for (bool cpu_formula : {false, true})
                                                for (int step : {1, 1000})
                                                  k.adam_mixed(mixed(dtype_of<G>, output, at, cpu_formula), 1.0f / 3, floats(at[5]), scalars_at(step, 0.01f, decoupled), n);
                                            }))
                << "length " << n;
          }
  });
}

// Slots of a step: 0 parameter, 1 accumulator, 2 and 3 moments, 4 output, 5 the last gradient; 6 to 10 the same but for the gradient,
// 11 and 12 norms, 13 and 14 coefficients, 15 and 16 flags.
std::vector<Array> step_arrays(std::size_t n, std::size_t offset, bool adversarial) {
  std::vector<Array> state = state_of(n, adversarial, offset, offset);
  state.push_back(Array(std::vector<Bf16>(n), offset));
  std::vector<Array> all = state;
  const std::vector<Bf16> gradient = adversarial ? cycle(interesting_values<Bf16>(), n) : std::vector<Bf16>(n, numeric::to_bf16(0.3f));
  all.push_back(Array(gradient, offset));
  all.insert(all.end(), state.begin(), state.end());
  all.insert(all.end(), {one_double(-1), one_double(-1), one_float(-1), one_float(-1), flag_array(), flag_array()});
  return all;
}

// How a step comes by what multiplies gradients: the scale beforehand and clipping apart, or both in one factor.
enum class Factor { apart, combined };
constexpr double loss_scale = 3.0;
constexpr double clip_norm = 0.5;

void fused_step(Kernels& k, const Addresses& at, std::size_t n, Factor factor, const numeric::AdamScalars& s) {
  const float unscale = factor == Factor::apart ? static_cast<float>(1.0 / loss_scale) : 1.0f;
  k.accumulate_with_norm(Dtype::float32, at[1], Dtype::bfloat16, at[5], unscale, n, doubles(at[11]), flag_at(at[15]));
  if (factor == Factor::apart) k.clip_coefficient(doubles(at[11]), clip_norm, floats(at[13]));
  else k.combined_factor(doubles(at[11]), loss_scale, clip_norm, floats(at[13]));
  k.adam_mixed(mixed(Dtype::float32, Dtype::bfloat16, at), unscale, floats(at[13]), s, n);
}

void unfused_step(Kernels& k, const Addresses& at, std::size_t n, Factor factor, const numeric::AdamScalars& s) {
  k.accumulate(Dtype::float32, at[7], Dtype::bfloat16, at[5], n);
  k.flag_not_finite(Dtype::float32, at[7], n, flag_at(at[16]));
  if (factor == Factor::apart) k.multiply(Dtype::float32, at[7], static_cast<float>(1.0 / loss_scale), n);
  k.squared_norm(Dtype::float32, at[7], n, doubles(at[12]));
  if (factor == Factor::apart) k.clip_coefficient(doubles(at[12]), clip_norm, floats(at[14]));
  else k.combined_factor(doubles(at[12]), loss_scale, clip_norm, floats(at[14]));
  k.multiply_by_stored(Dtype::float32, at[7], floats(at[14]), n);
  k.adam_fused(floats(at[6]), floats(at[7]), floats(at[8]), floats(at[9]), s, n);
  k.convert(Dtype::bfloat16, at[10], Dtype::float32, at[6], n);
}

TEST_P(fused_twins, a_fused_step_and_the_unfused_chain_give_equal_bits) {
  for (Factor factor : {Factor::apart, Factor::combined})
    for (bool adversarial : {false, true})
      for (std::size_t n : lengths())
        for (std::size_t offset : {0, 1}) {
          const auto both = [&](Kernels& k, const Addresses& at) {
            for (int step : {1, 2, 3}) {
              fused_step(k, at, n, factor, scalars_at(step, 0.01f, true));
              // The accumulator that the chain unscaled and clipped starts again from the one that the fused step left alone.
              unfused_step(k, at, n, factor, scalars_at(step, 0.01f, true));
              k.convert(Dtype::float32, at[7], Dtype::float32, at[1], n);
            }
          };
          SCOPED_TRACE(n);
          ASSERT_NO_FATAL_FAILURE(run_here(step_arrays(n, offset, adversarial), both));
          for (std::size_t slot : {0, 2, 3, 4}) ASSERT_NO_FATAL_FAILURE(expect_equal_slots(slot, slot + 6)) << "slot " << slot;
          ASSERT_NO_FATAL_FAILURE(expect_equal_slots(13, 14)) << "coefficients";
          ASSERT_NO_FATAL_FAILURE(expect_equal_slots(15, 16)) << "flags";
          if (!adversarial) {  // the payload of an fp64 NaN is the processor's
            ASSERT_NO_FATAL_FAILURE(expect_equal_slots(11, 12)) << "norms";
          }
        }
}

}  // namespace
}  // namespace gradledger::testing
