// Twins of the optimizers: several steps from adversarial and from ordinary states, every formula, every length.
#include "tests/gpu/comparison.h"
#include "tests/gpu/optimizer_states.h"

namespace gradledger::testing {
namespace {

using optimizer_twins = Twins;
INSTANTIATE_TEST_SUITE_P(all, optimizer_twins, ::testing::ValuesIn(implementations_under_test()), implementation_name);

TEST_P(optimizer_twins, sgd_with_and_without_decay) {
  for (float decay : {0.0f, 0.01f})
    for (std::size_t n : lengths())
      for (const auto& [offset, gradient_offset] : offsets())
        ASSERT_NO_FATAL_FAILURE(compare(state_of(n, true, gradient_offset, offset),
                                        [&, n = n](Kernels& k, const Addresses& at) {
                                          for (int step = 0; step < 3; ++step) k.sgd(floats(at[0]), floats(at[1]), 0.003f, decay, n);
                                        }))
            << "length " << n;
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
