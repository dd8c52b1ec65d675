// Twins of the optimizers: several steps from adversarial and from ordinary states, every formula, every length.
#include <cmath>

#include "tests/gpu/comparison.h"

namespace gradledger::testing {
namespace {

using optimizer_twins = Twins;
INSTANTIATE_TEST_SUITE_P(all, optimizer_twins, ::testing::ValuesIn(implementations_under_test()), implementation_name);

numeric::AdamScalars scalars_at(int step, float weight_decay, bool decoupled) {
  numeric::AdamScalars s;
  s.learning_rate = 0.003f;
  s.beta1 = 0.9f;
  s.one_minus_beta1 = static_cast<float>(1.0 - 0.9);
  s.beta2 = 0.999f;
  s.one_minus_beta2 = static_cast<float>(1.0 - 0.999);
  s.epsilon = 0x1p-27f;
  s.weight_decay = weight_decay;
  s.bias_correction1 = static_cast<float>(1.0 - std::pow(0.9, step));
  s.bias_correction2 = static_cast<float>(1.0 - std::pow(0.999, step));
  s.decoupled_decay = decoupled;
  return s;
}

float ordinary(Random& random) { return static_cast<float>(static_cast<double>(random.next() >> 40) / (1 << 23)) - 1; }

// Parameter, gradient and moments: ordinary values, every second one special where asked. A negative second moment gives NaN.
std::vector<Array> state_of(std::size_t n, bool adversarial, std::size_t gradient_offset, std::size_t offset) {
  const std::vector<float> values = interesting_values<float>();
  Random random(41 + n);
  std::vector<std::vector<float>> columns(4, std::vector<float>(n));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t column = 0; column < 4; ++column) {
      float x = adversarial && random.below(2) ? values[random.below(values.size())] : ordinary(random);
      if (column == 3 && random.below(8)) x = std::abs(x);
      columns[column][i] = x;
    }
  return {Array(columns[0], offset), Array(columns[1], gradient_offset), Array(columns[2], offset), Array(columns[3], offset)};
}

float* floats(std::byte* address) { return reinterpret_cast<float*>(address); }

TEST_P(optimizer_twins, sgd_with_and_without_decay) {
  for (float decay : {0.0f, 0.01f})
    for (std::size_t n : lengths())
      for (const auto& [offset, gradient_offset] : offsets())
        ASSERT_NO_FATAL_FAILURE(compare(state_of(n, true, gradient_offset, offset), [&, n = n](Kernels& k, const Addresses& at) {
          for (int step = 0; step < 3; ++step) k.sgd(floats(at[0]), floats(at[1]), 0.003f, decay, n);
        })) << "length " << n;
}

TEST_P(optimizer_twins, both_adam_formulas_with_either_decay_over_several_steps) {
  for (bool adversarial : {true, false})
    for (bool decoupled : {true, false})
      for (float decay : {0.0f, 0.01f})
        for (std::size_t n : lengths())
          for (const auto& [offset, gradient_offset] : offsets()) {
            const std::vector<Array> state = state_of(n, adversarial, gradient_offset, offset);
            SCOPED_TRACE(n);
            ASSERT_NO_FATAL_FAILURE(compare(state, [&, n = n](Kernels& k, const Addresses& at) {
              for (int step : {1, 2, 1000}) k.adam_fused(floats(at[0]), floats(at[1]), floats(at[2]), floats(at[3]), scalars_at(step, decay, decoupled), n);
            })) << "FusedAdam";
            ASSERT_NO_FATAL_FAILURE(compare(state, [&, n = n](Kernels& k, const Addresses& at) {
              for (int step : {1, 2, 1000}) k.adam_cpu(floats(at[0]), floats(at[1]), floats(at[2]), floats(at[3]), scalars_at(step, decay, decoupled), n);
            })) << "CPU Adam";
          }
}

TEST_P(optimizer_twins, many_random_elements) {
  const std::size_t n = sanitized ? 30'001 : 300'001;
  const std::vector<Array> state = {Array(random_elements<float>(n, 1), 0), Array(random_elements<float>(n, 2), 0), Array(random_elements<float>(n, 3), 0),
                                    Array(random_elements<float>(n, 4), 0)};
  const numeric::AdamScalars s = scalars_at(3, 0.01f, true);
  compare(state, [&](Kernels& k, const Addresses& at) { k.sgd(floats(at[0]), floats(at[1]), s.learning_rate, s.weight_decay, n); });
  compare(state, [&](Kernels& k, const Addresses& at) { k.adam_fused(floats(at[0]), floats(at[1]), floats(at[2]), floats(at[3]), s, n); });
  compare(state, [&](Kernels& k, const Addresses& at) { k.adam_cpu(floats(at[0]), floats(at[1]), floats(at[2]), floats(at[3]), s, n); });
}

}  // namespace
}  // namespace gradledger::testing
