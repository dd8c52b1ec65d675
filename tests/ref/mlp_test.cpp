// The backward that producers run: its reference, the fp32 one of the host, and what the bound between them tells apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ref/dtype_facts.h"
#include "ref/mlp_source.h"
#include "ref/oracle.h"
#include "sim/base/hash.h"
#include "sim/execution/host_autograd.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "tests/support/faulty_autograd.h"

namespace gradledger::testing {
namespace {

using ref::MlpSource;

using Gradients32 = std::vector<std::vector<float>>;

// Every element of every parameter: element(value, error, gradient in fp32).
template <class Element>
void for_each_element(const Scenario& s, const MlpSource& source, const Gradients32& gradients, Element&& element, std::uint32_t rank = 0) {
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
    std::vector<double> value(s.parameters[p].numel), error(value.size());
    source.gradient(0, rank, p, 0, value);
    source.gradient_error(0, rank, p, 0, error);
    for (std::size_t i = 0; i < value.size(); ++i) element(value[i], error[i], double{gradients[p][i]});
  }
}

// How many elements lie outside the bound, and the largest part of it that the others use.
struct Agreement {
  std::size_t elements = 0, outside = 0;
  double used = 0, relative = 0;  // error / bound; bound / root mean square of the gradient
};

Agreement agreement(const Scenario& s, const MlpSource& source, const Gradients32& gradients, std::uint32_t rank = 0) {
  Agreement out;
  double squares = 0, errors = 0;
  for_each_element(
      s, source, gradients,
      [&](double value, double error, double gradient) {
        ++out.elements;
        squares += value * value;
        errors += error * error;
        if (!(std::abs(gradient - value) <= error)) ++out.outside;
        else if (error > 0) out.used = std::max(out.used, std::abs(gradient - value) / error);
      },
      rank);
  out.relative = std::sqrt(errors / squares);
  return out;
}

Gradients32 run_on_host(const Scenario& s, const GradientSource& source, std::uint32_t rank = 0) {
  Gradients32 out;
  HostAutograd(s, source).run(0, rank, out);
  return out;
}

TEST(mlp, in_fp32_lies_within_the_bound_for_random_shapes) {
  double used = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const Scenario s = random_network(seed);
    const auto timeline = make_timeline(s);
    ASSERT_TRUE(timeline);
    const MlpSource source(s, *timeline, seed);
    const Agreement found = agreement(s, source, run_on_host(s, source));
    EXPECT_EQ(found.outside, 0u) << "seed " << seed << ", of " << found.elements;
    used = std::max(used, found.used);
  }
  EXPECT_GT(used, 0.0);
  RecordProperty("used", std::to_string(used));
}

// A sum of products is exact here, and a loss without activations is a square in each single weight: its central difference is its derivative.
TEST(mlp, its_reference_is_the_derivative_of_the_mean_squared_error) {
  const Scenario s = network({2, 2, 2}, Activation::none, true, 2);
  const auto timeline = make_timeline(s);
  const MlpSource source(s, *timeline, 5);
  std::vector<std::vector<double>> weights;
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
    weights.emplace_back(s.parameters[p].numel);
    source.initial_parameter(p, 0, weights.back());
  }
  const auto loss = [&] {
    long double sum = 0;
    for (std::uint32_t n = 0; n < 2; ++n) {
      std::vector<float> x(2), target(2);
      source.sample(0, 1, n, x, target);
      std::vector<long double> at(x.begin(), x.end());
      for (const LinearLayer& l : s.gradients.mlp->layers) {
        std::vector<long double> y;
        for (std::uint32_t o = 0; o < 2; ++o) y.push_back(weights[*l.bias][o] + weights[l.weight][2 * o] * at[0] + weights[l.weight][2 * o + 1] * at[1]);
        at = y;
      }
      for (std::uint32_t o = 0; o < 2; ++o) sum += (at[o] - target[o]) * (at[o] - target[o]);
    }
    return sum / 4;
  };
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
    std::vector<double> gradient(weights[p].size());
    source.gradient(0, 1, p, 0, gradient);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double w = weights[p][i];
      weights[p][i] = w + 0.5;
      const long double above = loss();
      weights[p][i] = w - 0.5;
      EXPECT_EQ(static_cast<double>(above - loss()), gradient[i]) << s.parameters[p].name << " " << i;
      weights[p][i] = w;
    }
  }
}

// The networks of the reports, the last one narrower.
std::vector<std::pair<const char*, Scenario>> reported() {
  return {{"DeepSpeed#7985", network({64, 64, 64}, Activation::gelu, true, 4)},
          {"DeepSpeed#7981", network({16, 32, 32, 8}, Activation::relu, true, 4)},
          {"DeepSpeed#7992", network(std::vector<std::uint32_t>(9, 16), Activation::none, false, 2)}};
}

TEST(mlp, its_bound_is_smaller_than_one_rounding_to_bf16_for_the_reported_networks) {
  for (const auto& [of, s] : reported()) {
    const auto timeline = make_timeline(s);
    const MlpSource source(s, *timeline, 3);
    const Agreement found = agreement(s, source, run_on_host(s, source));
    EXPECT_EQ(found.outside, 0u) << of;
    EXPECT_LT(found.relative, ref::facts_of(Dtype::bfloat16).unit_roundoff()) << of;
    EXPECT_GT(found.relative, ref::facts_of(Dtype::float32).unit_roundoff()) << of;
    RecordProperty(std::string("relative_") + (of + 10), std::to_string(found.relative));
  }
}

Agreement faulty(const Scenario& s, Fault fault, std::uint64_t seed) {
  const auto timeline = make_timeline(s);
  const MlpSource source(s, *timeline, seed);
  Gradients32 gradients;
  FaultyAutograd(s, source, fault).run(0, 0, gradients);
  return agreement(s, source, gradients);
}

TEST(mlp, in_another_order_of_every_sum_lies_within_the_bound) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) EXPECT_EQ(faulty(random_network(seed), Fault::none, seed).outside, 0u) << "seed " << seed;
}

TEST(mlp, with_any_one_fault_lies_outside_the_bound) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Scenario s = network({12, 8, 8, 5}, Activation::gelu, true, 3);
    EXPECT_EQ(faulty(s, Fault::none, seed).outside, 0u);
    for (const Fault fault : {Fault::transposed_weight, Fault::no_bias_in_the_forward, Fault::no_bias_gradient, Fault::slope_by_tanh, Fault::slope_of_the_output,
                              Fault::sum_for_mean, Fault::swapped_sample, Fault::products_in_tf32})
      EXPECT_GT(faulty(s, fault, seed).outside, 0u) << "fault " << static_cast<int>(fault) << ", seed " << seed;
  }
}

// One of the batch's samples is another: no element but one that does not depend on it stays within the bound.
TEST(mlp, of_a_swapped_sample_is_outside_in_nearly_every_element) {
  for (const auto& [of, s] : reported()) {
    const Agreement found = faulty(s, Fault::swapped_sample, 1);
    EXPECT_GT(found.outside, found.elements / 2) << of;
  }
}

// Formats and activations of the whole judgement: a correct backward is clean, whichever order it sums in.
TEST(mlp, judged_with_an_engine_is_clean_for_any_correct_backward_and_found_for_a_wrong_one) {
  for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16, Dtype::float16}) {
    for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu}) {
      Scenario s = network({6, 6, 6, 3}, activation, true, 2);
      s.model_dtype = dtype;
      deepspeed_config(s).bf16.enabled = dtype == Dtype::bfloat16;
      deepspeed_config(s).fp16.enabled = dtype == Dtype::float16;
      deepspeed_config(s).fp16.loss_scale = 64;
      deepspeed_config(s).zero.stage = activation == Activation::gelu ? 1 : 2;
      deepspeed_config(s).gradient_clipping = activation == Activation::none ? 0.25 : 0;
      const auto timeline = make_timeline(s);
      const auto judged = [&](Fault fault) {
        FaultyProducer producer(s, *timeline, fault);
        return ref::judge(s, *timeline, producer, {});
      };
      EXPECT_EQ(sentences(judge(s)), "");
      EXPECT_EQ(sentences(judged(Fault::none)), "");
      for (const Fault fault : {Fault::transposed_weight, Fault::no_bias_in_the_forward, Fault::sum_for_mean, Fault::swapped_sample})
        EXPECT_TRUE(classes(judged(fault)).contains("rounding-excess")) << name_of(dtype) << ", fault " << static_cast<int>(fault);
    }
  }
}

TEST(mlp, planted_infinities_reach_the_gradients_that_a_producer_computes) {
  Scenario s = network({4, 3, 2}, Activation::gelu, true, 2);
  s.model_dtype = Dtype::float16;
  deepspeed_config(s).fp16.enabled = true;
  deepspeed_config(s).fp16.loss_scale = 64;
  deepspeed_config(s).zero.stage = 2;
  ScriptItem overflow = event(ScriptKind::overflow);
  overflow.micro_batch = 1;
  overflow.uses = {"1.weight"};
  s.script = {overflow, repeat(2, managed(2))};
  EXPECT_EQ(sentences(judge(s)), "");
}

TEST(mlp, too_large_for_a_useful_bound_is_inconclusive_and_not_right) {
  const Scenario s = network(std::vector<std::uint32_t>(21, 128), Activation::none, false, 1);
  const auto timeline = make_timeline(s);
  const MlpSource source(s, *timeline, 1);
  std::vector<double> error(s.parameters[0].numel);
  source.gradient_error(0, 0, 0, 0, error);
  EXPECT_TRUE(std::all_of(error.begin(), error.end(), [](double e) { return std::isinf(e); }));
}

// One window of four samples, as one micro-batch or as two.
TEST(mlp, sees_the_same_samples_however_a_window_is_cut_into_micro_batches) {
  Scenario whole = network({5, 4, 3}, Activation::gelu, true, 4), halves = network({5, 4, 3}, Activation::gelu, true, 2);
  deepspeed_config(whole).gradient_accumulation_steps = 1;
  const auto one = make_timeline(whole), two = make_timeline(halves);
  const MlpSource source(whole, *one, 9), of_halves(halves, *two, 9);
  for (std::uint32_t p = 0; p < whole.parameters.size(); ++p) {
    const std::size_t n = whole.parameters[p].numel;
    std::vector<double> value(n), error(n), first(n), first_error(n), second(n), second_error(n);
    source.gradient(0, 1, p, 0, value);
    source.gradient_error(0, 1, p, 0, error);
    of_halves.gradient(0, 1, p, 0, first);
    of_halves.gradient_error(0, 1, p, 0, first_error);
    of_halves.gradient(1, 1, p, 0, second);
    of_halves.gradient_error(1, 1, p, 0, second_error);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_LE(std::abs(value[i] - (first[i] + second[i]) / 2), error[i] + (first_error[i] + second_error[i]) / 2);
      EXPECT_GT(std::abs(first[i] - second[i]), first_error[i] + second_error[i]) << "the halves are not the same";
    }
  }
}

// ---- errors on their way ----------------------------------------------------------------------------------------------------------------

// Errors of full size and random sign in every element of each vector, and the same maps.
TEST(error_chain, bounds_what_errors_become_and_products_of_maps_bound_it_better) {
  constexpr std::size_t n = 8, maps = 12;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SplitMix64 random(seed);
    const auto number = [&] { return static_cast<double>(static_cast<std::int64_t>(random.next()) >> 11) * 0x1p-53; };
    ref::ErrorChain composed(true, 1.0), plain(false, 1.0);
    std::vector<double> error(n), factors(n), local(n);
    composed.start(n);
    plain.start(n);
    for (std::size_t m = 0; m < maps; ++m) {
      std::vector<double> map(n * n), next(n);
      for (double& x : map) x = number();
      const bool transposed = m % 2 == 1;
      for (double& f : factors) f = number();
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t k = 0; k < n; ++k) next[i] += (transposed ? map[k * n + i] : map[i * n + k]) * error[k];
        local[i] = std::abs(number());
        error[i] = 0;
      }
      for (std::size_t i = 0; i < n; ++i) error[i] = (next[i] * factors[i]) + (random.below(2) == 0 ? local[i] : -local[i]);
      for (ref::ErrorChain* chain : {&composed, &plain}) {
        chain->multiply({map.data(), n, n, transposed});
        chain->scale(factors);
        chain->add(local);
      }
      for (std::size_t i = 0; i < n; ++i) ASSERT_LE(std::abs(error[i]), composed.bound()[i]) << "map " << m;
    }
    for (std::size_t i = 0; i < n; ++i) EXPECT_LT(composed.bound()[i], plain.bound()[i]);
  }
}

TEST(error_chain, of_an_exact_vector_is_exact_until_an_error_arises) {
  ref::ErrorChain chain(true, 1.0);
  const std::vector<double> map{1, 2, 3, 4, 5, 6};
  chain.start(3);
  chain.multiply({map.data(), 2, 3, false});
  EXPECT_EQ(chain.bound(), (std::vector<double>{0, 0}));
  chain.add(std::vector<double>{1, 2});
  EXPECT_EQ(chain.bound(), (std::vector<double>{1, 2}));
  chain.multiply({map.data(), 3, 2, true});
  EXPECT_EQ(chain.bound(), (std::vector<double>{9, 12, 15}));
}

}  // namespace
}  // namespace gradledger::testing
