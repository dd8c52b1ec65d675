#include "sim/base/rational.h"

#include <cmath>
#include <numeric>

namespace gradledger {
namespace {

constexpr std::int64_t part_max = std::int64_t{1} << 62;

}  // namespace

std::optional<Rational> checked_product(const Rational& a, const Rational& b) {
  const std::int64_t left = std::gcd(a.numerator(), b.denominator()), right = std::gcd(b.numerator(), a.denominator());
  std::int64_t numerator = 0, denominator = 0;
  // A numerator of 0 has the other's denominator for its divisor.
  if (__builtin_mul_overflow(a.numerator() / left, b.numerator() / right, &numerator)) return std::nullopt;
  if (__builtin_mul_overflow(a.denominator() / right, b.denominator() / left, &denominator)) return std::nullopt;
  if (numerator > part_max || numerator < -part_max || denominator > part_max) return std::nullopt;
  return Rational(numerator, denominator);
}

// With both parts below 2^62, 128 bits hold the cross products and their sum.
std::optional<Rational> checked_sum(const Rational& a, const Rational& b) {
  __extension__ typedef __int128 Wide;
  const std::int64_t common = std::gcd(a.denominator(), b.denominator());
  Wide numerator = static_cast<Wide>(a.numerator()) * (b.denominator() / common) + static_cast<Wide>(b.numerator()) * (a.denominator() / common);
  Wide denominator = static_cast<Wide>(a.denominator()) * (b.denominator() / common);
  // What both can still be divided by divides the common part of the denominators.
  const auto shared = std::gcd(static_cast<std::int64_t>(numerator % common), common);
  numerator /= shared;
  denominator /= shared;
  if (numerator > part_max || numerator < -part_max || denominator > part_max) return std::nullopt;
  return Rational(static_cast<std::int64_t>(numerator), static_cast<std::int64_t>(denominator));
}

// Convergents and semiconvergents of the continued fraction: of all quotients in an interval, the tree of Stern and Brocot meets the one
// of the smallest terms first.
std::optional<Rational> simplest_within(double x, double error, std::int64_t most) {
  if (!std::isfinite(x) || !(error >= 0)) return std::nullopt;
  if (x < 0) {
    const auto positive = simplest_within(-x, error, most);
    return positive ? std::optional(-*positive) : std::nullopt;
  }
  const double low = x - error, high = x + error;
  if (low <= 0) return Rational(0);
  std::int64_t left_p = 0, left_q = 1, right_p = 1, right_q = 0;
  while (true) {
    const std::int64_t p = left_p + right_p, q = left_q + right_q;
    if (p > most || q > most) return std::nullopt;
    const double middle = static_cast<double>(p) / static_cast<double>(q);
    if (middle >= low && middle <= high) return Rational(p, q);
    // As many steps to the same side at once as stay there.
    const bool too_small = middle < low;
    std::int64_t& near_p = too_small ? left_p : right_p;
    std::int64_t& near_q = too_small ? left_q : right_q;
    const std::int64_t far_p = too_small ? right_p : left_p, far_q = too_small ? right_q : left_q;
    const double bound = too_small ? low : high;
    const double gap = std::abs(static_cast<double>(near_p) - bound * static_cast<double>(near_q));
    const double pace = std::abs(static_cast<double>(far_p) - bound * static_cast<double>(far_q));
    auto steps = pace > 0 ? static_cast<std::int64_t>(std::min(gap / pace, static_cast<double>(most))) : most;
    steps = std::max<std::int64_t>(1, steps - 1);
    // Asked before the product is made, which has more than 64 bits where the number is near to 0 or large.
    const auto beyond = [&](std::int64_t near, std::int64_t far) { return far > 0 && steps > (most - near) / far; };
    if (beyond(near_p, far_p) || beyond(near_q, far_q)) return std::nullopt;
    near_p += steps * far_p;
    near_q += steps * far_q;
  }
}

std::string text_of(const Rational& x) {
  std::string out = std::to_string(x.numerator());
  return x.denominator() == 1 ? out : out + "/" + std::to_string(x.denominator());
}

}  // namespace gradledger
