// Exact weights: quotients of whole numbers, as files give them and reports show them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <boost/rational.hpp>

namespace gradledger {

using Rational = boost::rational<std::int64_t>;

// None where the result does not fit: numerator and denominator in lowest terms are at most 2^62.
std::optional<Rational> checked_product(const Rational& a, const Rational& b);
std::optional<Rational> checked_sum(const Rational& a, const Rational& b);

// Nearest fp64.
inline double value_of(const Rational& x) { return static_cast<double>(x.numerator()) / static_cast<double>(x.denominator()); }

// The quotient of the smallest whole numbers, both at most `most`, that lies within `error` of x; none where there is none.
std::optional<Rational> simplest_within(double x, double error, std::int64_t most);

// "3/8", "2", "0".
std::string text_of(const Rational& x);

}  // namespace gradledger
