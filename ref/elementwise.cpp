// Compiled once for every instruction set that Highway knows, as sim/numeric/kernels_simd.cpp is.
#include "ref/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ref/elementwise.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>
#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace gradledger::ref {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Vectors = hn::ScalableTag<double>;
using Alone = hn::CappedTag<double, 1>;

// Whole vectors, then one element after the other. at: takes a tag and the first element.
template <class At>
HWY_INLINE void for_all(std::size_t n, const At& at) {
  const Vectors d;
  std::size_t i = 0;
  for (const std::size_t lanes = hn::Lanes(d); i + lanes <= n; i += lanes) at(d, i);
  for (; i < n; ++i) at(Alone(), i);
}

// ---- bounded.h, of vectors --------------------------------------------------------------------------------------------------------------

template <class D>
using V = hn::Vec<D>;

template <class D>
HWY_INLINE V<D> rounding_of(D d, Rounding r, V<D> magnitude) {
  return hn::Add(hn::Mul(hn::Set(d, r.u), magnitude), hn::Set(d, r.tiny / 2));
}

template <class D>
HWY_INLINE V<D> widened_of(D d, V<D> error) {
  return hn::Mul(error, hn::Set(d, 1.0 + 4 * std::numeric_limits<double>::epsilon()));
}

template <class D>
HWY_INLINE auto is_zero(D d, V<D> x) {
  return hn::Eq(x, hn::Zero(d));
}

// Of two the larger, as std::max has it where one is no number.
template <class D>
HWY_INLINE V<D> larger_of(D, V<D> a, V<D> b) {
  return hn::IfThenElse(hn::Lt(a, b), b, a);
}

template <class D>
HWY_INLINE V<D> smaller_of(D, V<D> a, V<D> b) {
  return hn::IfThenElse(hn::Lt(b, a), b, a);
}

// A power of two divides as its reciprocal multiplies, both being exact or rounded alike.
struct Divisor {
  explicit Divisor(double by) : divisor(by), reciprocal(1 / by) {
    int exponent;
    multiplies = std::isnormal(by) && std::isnormal(reciprocal) && std::abs(std::frexp(by, &exponent)) == 0.5;
  }
  template <class D>
  HWY_INLINE V<D> of(D d, V<D> x) const {
    return multiplies ? hn::Mul(x, hn::Set(d, reciprocal)) : hn::Div(x, hn::Set(d, divisor));
  }
  double divisor, reciprocal;
  bool multiplies;
};

// ---- terms ------------------------------------------------------------------------------------------------------------------------------

// Adding rounds, but for the first term of a sum in a format that has all of it.
template <class D>
HWY_INLINE void add_one(D d, Sums into, std::size_t i, V<D> term, V<D> error, hn::Mask<D> adds, Rounding accumulate, bool first_is_exact) {
  const auto before = hn::LoadU(d, into.value + i);
  const auto sum = hn::Add(before, term);
  hn::StoreU(hn::IfThenElse(adds, sum, before), d, into.value + i);
  if (!into.error) return;
  const auto of_sum = hn::LoadU(d, into.error + i);
  auto rounding = rounding_of(d, accumulate, hn::Add(hn::Add(hn::Abs(sum), of_sum), error));
  if (first_is_exact) rounding = hn::IfThenZeroElse(hn::And(is_zero(d, of_sum), hn::Eq(sum, term)), rounding);
  hn::StoreU(hn::IfThenElse(adds, widened_of(d, hn::Add(hn::Add(of_sum, error), rounding)), of_sum), d, into.error + i);
}

// Whether a gradient has so few significand bits that autograd does not round it.
template <class D>
HWY_INLINE hn::Mask<D> held_as_computed(D d, V<D> gradient, std::uint64_t more) {
  const hn::RebindToUnsigned<D> bits;
  const auto below_normals = hn::Lt(hn::Abs(gradient), hn::Set(d, std::numeric_limits<double>::min()));
  const auto normal = hn::IfThenElse(below_normals, hn::Mul(gradient, hn::Set(d, 0x1p54)), gradient);
  const auto rest = hn::And(hn::BitCast(bits, normal), hn::Set(bits, more));
  return hn::AndNot(hn::IsNaN(gradient), hn::RebindMask(d, hn::Eq(rest, hn::Zero(bits))));
}

template <class D>
HWY_INLINE V<D> error_of_term(D d, const Terms& t, std::size_t i, V<D> term, V<D> before) {
  const auto rounding = hn::Mul(hn::Mul(hn::Set(d, t.deposit.u + t.weight_error), hn::Add(hn::Abs(term), before)), hn::Set(d, 1 + t.deposit.u));
  if (t.weight_error != 0) return hn::Add(hn::Add(before, rounding), hn::Set(d, t.deposit.tiny));
  const auto exact = hn::And(is_zero(d, before), held_as_computed(d, hn::LoadU(d, t.gradient + i), t.more_than_computed));
  return hn::Add(hn::Add(before, hn::IfThenZeroElse(exact, rounding)), hn::Set(d, t.deposit.tiny));
}

void add_all_terms(const Terms& t, Sums local, Sums since, double* average, Fresh fresh, std::size_t n) {
  const Divisor divisor(t.divisor);
  const bool first_is_exact = t.accumulate.u <= t.deposit.u;
  for_all(n, [&](auto d, std::size_t i) HWY_ATTR {
    const auto weight = hn::Set(d, t.weight);
    const auto term = hn::Mul(hn::LoadU(d, t.gradient + i), weight);
    const auto before = t.gradient_error ? hn::Mul(hn::LoadU(d, t.gradient_error + i), weight) : hn::Zero(d);
    if (average) hn::StoreU(hn::Add(hn::LoadU(d, average + i), divisor.of(d, term)), d, average + i);
    const auto adds = hn::Not(hn::And(is_zero(d, term), is_zero(d, before)));
    const auto error = local.error ? error_of_term(d, t, i, term, before) : hn::Zero(d);
    add_one(d, local, i, term, error, adds, t.accumulate, first_is_exact);
    if (since.value) add_one(d, since, i, term, error, adds, t.accumulate, first_is_exact);
    if (!fresh.terms) return;
    const auto grow = [&](double* sums, auto more) HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(d, sums + i), hn::IfThenElseZero(adds, more)), d, sums + i); };
    grow(fresh.magnitude, divisor.of(d, hn::Add(hn::Abs(term), before)));
    grow(fresh.error, divisor.of(d, error));
    grow(fresh.terms, hn::Set(d, 1.0));
  });
}

void add_all_sums(Summed terms, Rounding accumulate, bool first_is_exact, Sums into, std::size_t n) {
  for_all(n, [&](auto d, std::size_t i) HWY_ATTR {
    const auto term = hn::LoadU(d, terms.value + i);
    const auto of_term = terms.error ? hn::LoadU(d, terms.error + i) : hn::Zero(d);
    add_one(d, into, i, term, of_term, hn::Not(hn::And(is_zero(d, term), is_zero(d, of_term))), accumulate, first_is_exact);
  });
}

// ---- reductions -------------------------------------------------------------------------------------------------------------------------

template <class D>
HWY_INLINE V<D> error_of_reduction(D d, const Reduction& r, V<D> terms_magnitude, V<D> result_magnitude, V<D> terms) {
  const auto one = hn::Set(d, 1.0);
  auto error = hn::Mul(hn::Set(d, r.average_roundings), rounding_of(d, r.wire, terms_magnitude));
  if (r.wire.u > std::min(r.accumulate.u, r.deposit.u)) error = hn::Add(error, rounding_of(d, r.wire, terms_magnitude));  // the cast of a sum, or of what was computed
  const auto partial_sums = rounding_of(d, r.wire, hn::Mul(terms_magnitude, hn::Add(one, hn::Mul(terms, hn::Set(d, r.wire.u)))));
  error = hn::IfThenElse(hn::Gt(terms, one), hn::Add(error, hn::Mul(hn::Sub(terms, one), partial_sums)), error);
  if (r.deposit.u > r.wire.u) {
    const double sums = r.sums_of_share;
    error = hn::Add(error, hn::Mul(hn::Set(d, sums), rounding_of(d, r.deposit, hn::Mul(terms_magnitude, hn::Set(d, 1 + sums * r.deposit.u)))));
  }
  if (r.accumulate.u > r.wire.u) error = hn::Add(error, rounding_of(d, r.accumulate, result_magnitude));
  const auto below_normals = hn::Mul(hn::Add(hn::Add(hn::Set(d, r.average_roundings), terms), hn::Set(d, 2.0)), hn::Set(d, std::max(r.wire.tiny, r.deposit.tiny)));
  return hn::Add(hn::Mul(error, hn::Set(d, 1 + (r.average_roundings + 2) * r.wire.u)), below_normals);
}

void reduce_one_backward(const Reduction& r, Fresh fresh, const double* average, double* error, std::size_t n) {
  for_all(n, [&](auto d, std::size_t i) HWY_ATTR {
    const auto terms = hn::LoadU(d, fresh.terms + i), magnitude = hn::LoadU(d, fresh.magnitude + i), before = hn::LoadU(d, error + i);
    auto after = hn::Add(before, hn::Add(hn::LoadU(d, fresh.error + i), error_of_reduction(d, r, magnitude, magnitude, terms)));
    const auto accumulated = hn::Add(after, rounding_of(d, r.accumulate, hn::Add(hn::Abs(hn::LoadU(d, average + i)), after)));
    after = widened_of(d, hn::IfThenElse(is_zero(d, before), after, accumulated));
    hn::StoreU(hn::IfThenElse(hn::Gt(terms, hn::Zero(d)), after, before), d, error + i);
  });
}

void reduce_all_waiting(const Reduction& r, const Waiting& w, const double* least, double* out, std::size_t n) {
  const Divisor divisor(r.divisor);
  for_all(n, [&](auto d, std::size_t i) HWY_ATTR {
    const auto one = hn::Set(d, 1.0), ranks = hn::Set(d, r.ranks);
    auto magnitude = hn::LoadU(d, w.left_magnitude + i), error = hn::LoadU(d, w.left_error + i);
    auto terms = hn::IfThenElseZero(hn::Gt(magnitude, hn::Zero(d)), ranks);
    for (const Summed& of_rank : w.ranks) {
      const auto value = hn::LoadU(d, of_rank.value + i), of_value = hn::LoadU(d, of_rank.error + i);
      const auto nothing = hn::And(is_zero(d, value), is_zero(d, of_value));
      magnitude = hn::IfThenElse(nothing, magnitude, hn::Add(magnitude, divisor.of(d, hn::Add(hn::Abs(value), of_value))));
      error = hn::IfThenElse(nothing, error, hn::Add(error, divisor.of(d, of_value)));
      terms = hn::IfThenElse(nothing, terms, smaller_of(d, hn::Add(terms, one), ranks));
    }
    const auto result_magnitude = hn::Add(hn::Abs(hn::LoadU(d, w.average + i)), error);
    const auto reduced = widened_of(d, hn::Add(hn::Add(error, rounding_of(d, r.accumulate, magnitude)), error_of_reduction(d, r, magnitude, result_magnitude, terms)));
    const auto now = hn::IfThenElse(is_zero(d, terms), error, reduced);
    hn::StoreU(least ? larger_of(d, hn::LoadU(d, least + i), now) : now, d, out + i);
  });
}

// ---- what is stored ---------------------------------------------------------------------------------------------------------------------

template <class D>
HWY_INLINE V<D> bound_of(D d, const Held& h, std::size_t i) {
  auto bound = h.stored_error ? hn::LoadU(d, h.stored_error + i) : hn::Zero(d);
  if (!h.due_error) return bound;
  const auto due = hn::LoadU(d, h.due + i), error = hn::LoadU(d, h.due_error + i);
  const auto of_factor = hn::Mul(hn::Add(hn::Abs(due), error), hn::Set(d, h.factor_error));
  bound = hn::Add(bound, hn::Mul(hn::Set(d, h.scale), hn::Add(hn::Mul(error, hn::Set(d, h.factor)), of_factor)));
  return hn::Add(bound, hn::Set(d, h.least_error));
}

// Whether all are within; the largest error in units of its bound.
template <class D>
HWY_INLINE bool all_within(D d, const Held& h, std::size_t i, V<D>& tightest) {
  const auto expected = hn::Mul(hn::Mul(hn::LoadU(d, h.due + i), hn::Set(d, h.factor)), hn::Set(d, h.scale));
  const auto bound = bound_of(d, h, i);
  const auto error = hn::Abs(hn::Sub(hn::LoadU(d, h.stored + i), expected));
  if (!hn::AllTrue(d, hn::And(hn::Le(error, bound), hn::And(hn::IsFinite(expected), hn::IsFinite(bound))))) return false;
  const auto bounded = hn::Gt(bound, hn::Zero(d));
  tightest = hn::Max(tightest, hn::IfThenElseZero(bounded, hn::Div(error, hn::IfThenElse(bounded, bound, hn::Set(d, 1.0)))));
  return true;
}

std::size_t count_all_within(const Held& h, std::size_t n, double& tightest) {
  const Vectors d;
  std::size_t i = 0;
  auto most = hn::Set(d, tightest);
  for (const std::size_t lanes = hn::Lanes(d); i + lanes <= n && all_within(d, h, i, most); i += lanes) {}
  tightest = hn::GetLane(hn::MaxOfLanes(d, most));
  const Alone one;
  auto last = hn::Set(one, tightest);
  for (; i < n && all_within(one, h, i, last); ++i) {}
  tightest = hn::GetLane(last);
  return i;
}

double bound_at(const Held& h, std::size_t i) { return hn::GetLane(bound_of(Alone(), h, i)); }

}  // namespace HWY_NAMESPACE
}  // namespace gradledger::ref
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradledger::ref {

HWY_EXPORT(add_all_terms);
HWY_EXPORT(add_all_sums);
HWY_EXPORT(reduce_one_backward);
HWY_EXPORT(reduce_all_waiting);
HWY_EXPORT(count_all_within);
HWY_EXPORT(bound_at);

void add_terms(const Terms& terms, Sums local, Sums since, double* average, Fresh fresh, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(add_all_terms)(terms, local, since, average, fresh, n);
}

void add_sums(Summed terms, Rounding accumulate, bool first_is_exact, Sums into, std::size_t n) { HWY_DYNAMIC_DISPATCH(add_all_sums)(terms, accumulate, first_is_exact, into, n); }

void reduce_backward(const Reduction& reduction, Fresh fresh, const double* average, double* error, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(reduce_one_backward)(reduction, fresh, average, error, n);
}

void reduce_waiting(const Reduction& reduction, const Waiting& waiting, const double* least, double* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(reduce_all_waiting)(reduction, waiting, least, out, n);
}

double Held::bound(std::size_t i) const { return HWY_DYNAMIC_DISPATCH(bound_at)(*this, i); }

std::size_t count_within(const Held& held, std::size_t n, double& tightest) { return HWY_DYNAMIC_DISPATCH(count_all_within)(held, n, tightest); }

}  // namespace gradledger::ref
#endif  // HWY_ONCE
