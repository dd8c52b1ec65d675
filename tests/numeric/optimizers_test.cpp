// The optimizer formulas twice: bit for bit, one exactly rounded operation after the other, and against a long double evaluation
// within a bound that the unit roundoff and the operations give.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "sim/numeric/kernels.h"
#include "tests/numeric/adam_scalars.h"
#include "tests/numeric/operands.h"

namespace gradledger::testing {
namespace {

using numeric::AdamScalars;

struct State {
  std::vector<float> parameter, gradient, first, second;
};

enum class Formula { sgd, sgd_without_decay, adam_fused, adamw_fused, adam_cpu, adamw_cpu };
const Formula formulas[] = {Formula::sgd, Formula::sgd_without_decay, Formula::adam_fused, Formula::adamw_fused, Formula::adam_cpu, Formula::adamw_cpu};

bool decoupled(Formula formula) { return formula == Formula::adamw_fused || formula == Formula::adamw_cpu; }
bool on_cpu(Formula formula) { return formula == Formula::adam_cpu || formula == Formula::adamw_cpu; }

AdamScalars scalars_at(Formula formula, int step) { return testing::scalars_at(step, formula == Formula::sgd_without_decay ? 0.0f : 0.01f, decoupled(formula)); }

void apply(Formula formula, State& state, const AdamScalars& s) {
  const std::size_t n = state.parameter.size();
  float* p = state.parameter.data();
  const float* g = state.gradient.data();
  switch (formula) {
    case Formula::sgd:
    case Formula::sgd_without_decay: return numeric::sgd(p, g, s.learning_rate, s.weight_decay, n);
    case Formula::adam_fused:
    case Formula::adamw_fused: return numeric::adam_fused(p, g, state.first.data(), state.second.data(), s, n);
    case Formula::adam_cpu:
    case Formula::adamw_cpu: return numeric::adam_cpu(p, g, state.first.data(), state.second.data(), s, n);
  }
}

// One element's parameter and moments, in any kind of number.
template <class Number>
struct Element {
  Number parameter, gradient, first, second;
};

// The formulas of the specification over a Number with its own rounding; fma is one operation of it.
template <class Number>
Element<Number> expected_update(Formula formula, Element<Number> e, const AdamScalars& s) {
  const auto number = [](float x) { return Number(x); };
  const Number rate = number(s.learning_rate);
  const Number decay = number(s.weight_decay);
  if (formula == Formula::sgd) e.gradient = fma(e.parameter, decay, e.gradient);
  if (formula == Formula::sgd || formula == Formula::sgd_without_decay) {
    e.parameter = fma(e.gradient, number(-s.learning_rate), e.parameter);
    return e;
  }
  const Number b1 = number(s.beta1), c1 = number(s.one_minus_beta1), b2 = number(s.beta2), c2 = number(s.one_minus_beta2);
  if (on_cpu(formula)) {
    const bool decays = s.weight_decay > 0;
    if (decays && !decoupled(formula)) e.gradient = fma(e.parameter, decay, e.gradient);
    e.first = fma(e.gradient, c1, e.first * b1);
    e.second = fma(e.gradient * e.gradient, c2, e.second * b2);
    const Number inverse_root = number(1.0f) / sqrt(number(s.bias_correction2));
    const Number denominator = fma(sqrt(e.second), inverse_root, number(s.epsilon));
    const Number minus_rate = number(-s.learning_rate);
    if (decays && decoupled(formula)) e.parameter = fma(e.parameter, minus_rate * decay, e.parameter);
    e.parameter = fma(e.first / denominator, minus_rate / number(s.bias_correction1), e.parameter);
    return e;
  }
  if (!decoupled(formula)) e.gradient = e.gradient + decay * e.parameter;
  e.first = b1 * e.first + c1 * e.gradient;
  e.second = b2 * e.second + (c2 * e.gradient) * e.gradient;
  const Number first_corrected = e.first / number(s.bias_correction1);
  const Number denominator = sqrt(e.second / number(s.bias_correction2)) + number(s.epsilon);
  Number update = first_corrected / denominator;
  if (decoupled(formula)) update = update + decay * e.parameter;
  e.parameter = e.parameter - rate * update;
  return e;
}

// ---- bit for bit ----------------------------------------------------------------------------------------------------------------

// fp32 whose every operation is done in double and rounded once more: innocuous, because 53 >= 2 * 24 + 2. fma is exact first.
struct Rounded {
  float value;
  explicit Rounded(float x) : value(x) {}
  explicit Rounded(double x) : value(std::isnan(x) ? from_bits<float>(reference::fp32.nan()) : static_cast<float>(x)) {}
  operator double() const { return static_cast<double>(value); }
};
Rounded operator+(Rounded a, Rounded b) { return Rounded(double(a) + double(b)); }
Rounded operator-(Rounded a, Rounded b) { return Rounded(double(a) - double(b)); }
Rounded operator*(Rounded a, Rounded b) { return Rounded(double(a) * double(b)); }
Rounded operator/(Rounded a, Rounded b) { return Rounded(double(a) / double(b)); }
Rounded sqrt(Rounded a) { return Rounded(std::sqrt(double(a))); }
Rounded fma(Rounded a, Rounded b, Rounded c) { return Rounded(from_bits<float>(reference::fused(reference::fp32, bits(a.value), bits(b.value), bits(c.value)))); }

// 24 random bits between -1 and 1.
float random_fraction(Random& random) { return static_cast<float>(static_cast<std::int64_t>(random.next() >> 40) - (1 << 23)) / (1 << 23); }

State adversarial_state() {
  State state;
  const std::vector<float> values = interesting_values<float>();
  Random random(41);
  for (std::size_t i = 0; i < 20'000; ++i) {
    const auto pick = [&] { return random.below(2) ? values[random.below(values.size())] : random_fraction(random); };
    state.parameter.push_back(pick());
    state.gradient.push_back(pick());
    state.first.push_back(pick());
    state.second.push_back(random.below(8) ? std::abs(pick()) : pick());  // a negative second moment gives NaN, too
  }
  return state;
}

TEST(optimizers, every_operation_of_every_formula_rounds_once) {
  const State before = adversarial_state();
  std::uint64_t count = 0;
  for (Formula formula : formulas)
    for (int step : {1, 2, 1000}) {
      AdamScalars s = scalars_at(formula, step);
      if (step == 2 && formula != Formula::sgd) s.weight_decay = 0;
      State after = before;
      apply(formula, after, s);
      for (std::size_t i = 0; i < before.parameter.size(); ++i, ++count) {
        const Element<Rounded> expected =
            expected_update<Rounded>(formula, {Rounded(before.parameter[i]), Rounded(before.gradient[i]), Rounded(before.first[i]), Rounded(before.second[i])}, s);
        const bool moments = formula != Formula::sgd && formula != Formula::sgd_without_decay;
        SCOPED_TRACE(i);
        ASSERT_EQ(bits(after.parameter[i]), bits(expected.parameter.value)) << static_cast<int>(formula);
        ASSERT_EQ(bits(after.first[i]), bits(moments ? expected.first.value : before.first[i])) << static_cast<int>(formula);
        ASSERT_EQ(bits(after.second[i]), bits(moments ? expected.second.value : before.second[i])) << static_cast<int>(formula);
        ASSERT_EQ(bits(after.gradient[i]), bits(before.gradient[i]));
      }
    }
  report_count(count, std::size(formulas) * 3 * before.parameter.size());
}

// ---- within the derived bound ---------------------------------------------------------------------------------------------------

// A real number in long double, and how far the fp32 evaluation may be from it: each operation carries its operands' errors on
// and adds one rounding of fp32 (relative u, absolute half a subnormal) and one of long double.
struct Bounded {
  long double value = 0;
  long double error = 0;
  Bounded() = default;
  explicit Bounded(float x) : value(x) {}
  Bounded(long double v, long double carried) : value(v) {
    constexpr long double u = std::numeric_limits<float>::epsilon() / 2;
    constexpr long double u_here = std::numeric_limits<long double>::epsilon() / 2;
    constexpr long double half_subnormal = std::numeric_limits<float>::denorm_min() / 2.0L;
    error = carried + u * (std::abs(v) + carried) + half_subnormal + u_here * std::abs(v);
  }
};
long double product_error(const Bounded& a, const Bounded& b) { return std::abs(a.value) * b.error + std::abs(b.value) * a.error + a.error * b.error; }
Bounded operator+(Bounded a, Bounded b) { return {a.value + b.value, a.error + b.error}; }
Bounded operator-(Bounded a, Bounded b) { return {a.value - b.value, a.error + b.error}; }
Bounded operator*(Bounded a, Bounded b) { return {a.value * b.value, product_error(a, b)}; }
Bounded operator/(Bounded a, Bounded b) {
  const long double quotient = a.value / b.value;
  return {quotient, (a.error + std::abs(quotient) * b.error) / (std::abs(b.value) - b.error)};
}
Bounded sqrt(Bounded a) {
  const long double below = std::sqrt(std::max(a.value - a.error, 0.0L));
  return {std::sqrt(a.value), std::max(std::sqrt(a.value + a.error) - std::sqrt(a.value), std::sqrt(a.value) - below)};
}
Bounded fma(Bounded a, Bounded b, Bounded c) { return {a.value * b.value + c.value, product_error(a, b) + c.error}; }

bool within(float observed, const Bounded& expected) { return std::abs(static_cast<long double>(observed) - expected.value) <= expected.error; }

State training_state() {
  State state;
  Random random(43);
  const auto pick = [&] { return random_fraction(random); };
  for (std::size_t i = 0; i < 4000; ++i) {
    state.parameter.push_back(pick());
    state.gradient.push_back(pick() * 0x1p-8f);
    state.first.push_back(pick() * 0x1p-9f);
    state.second.push_back(std::abs(pick()) * 0x1p-16f + 0x1p-24f);
  }
  return state;
}

// How many elements of `after` lie outside the bound of `formula`.
std::uint64_t outside(Formula formula, const State& before, const State& after, const AdamScalars& s) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < before.parameter.size(); ++i) {
    const Element<Bounded> expected =
        expected_update<Bounded>(formula, {Bounded(before.parameter[i]), Bounded(before.gradient[i]), Bounded(before.first[i]), Bounded(before.second[i])}, s);
    const bool moments = within(after.first[i], expected.first) && within(after.second[i], expected.second);
    count += !(moments && within(after.parameter[i], expected.parameter));
  }
  return count;
}

TEST(optimizers, updates_stay_within_the_derived_bound_of_the_real_formula) {
  std::uint64_t count = 0;
  for (Formula formula : formulas) {
    State state = training_state();
    for (int step = 1; step <= 20; ++step) {
      const State before = state;
      apply(formula, state, scalars_at(formula, step));
      ASSERT_EQ(outside(formula, before, state, scalars_at(formula, step)), 0u) << static_cast<int>(formula) << " step " << step;
      count += state.parameter.size();
    }
  }
  report_count(count, std::size(formulas) * 20 * 4000);
}

// The bound is worth something only if another formula is outside of it.
TEST(optimizers, the_bound_excludes_other_formulas_and_other_scalars) {
  const State before = training_state();
  std::uint64_t count = 0;
  const auto expect_outside = [&](Formula applied, const AdamScalars& with, Formula judged, const AdamScalars& by, const char* what) {
    State after = before;
    apply(applied, after, with);
    EXPECT_GT(outside(judged, before, after, by), before.parameter.size() / 2) << what;
    ++count;
  };
  for (Formula formula : {Formula::adam_fused, Formula::adamw_fused, Formula::adam_cpu, Formula::adamw_cpu}) {
    const AdamScalars s = scalars_at(formula, 3);
    AdamScalars changed = s;
    changed.bias_correction1 = 1;
    expect_outside(formula, changed, formula, s, "no first bias correction");
    changed = s;
    changed.bias_correction2 = 1;
    expect_outside(formula, changed, formula, s, "no second bias correction");
    changed = scalars_at(formula, 4);
    expect_outside(formula, changed, formula, s, "the next step's corrections");
    changed = s;
    changed.weight_decay = 0;
    expect_outside(formula, changed, formula, s, "no weight decay");
    changed = s;
    changed.decoupled_decay = !s.decoupled_decay;
    expect_outside(formula, changed, formula, s, "the other kind of decay");
    changed = s;
    changed.epsilon = 0x1p-12f;
    expect_outside(formula, changed, formula, s, "another epsilon");
  }
  const AdamScalars without = scalars_at(Formula::sgd_without_decay, 1);
  expect_outside(Formula::sgd_without_decay, without, Formula::sgd, scalars_at(Formula::sgd, 1), "no decay");
  report_count(count, 4 * 6 + 1);
}

TEST(optimizers, fused_and_cpu_formulas_differ_in_bits) {
  for (auto [fused, cpu] : {std::pair(Formula::adam_fused, Formula::adam_cpu), std::pair(Formula::adamw_fused, Formula::adamw_cpu)}) {
    State on_device = training_state();
    State on_host = on_device;
    apply(fused, on_device, scalars_at(fused, 1));
    apply(cpu, on_host, scalars_at(cpu, 1));
    std::uint64_t different = 0;
    for (std::size_t i = 0; i < on_host.parameter.size(); ++i) different += bits(on_device.parameter[i]) != bits(on_host.parameter[i]);
    EXPECT_GT(different, 0u);
  }
}

}  // namespace
}  // namespace gradledger::testing
