// What the reference does to every element of a parameter, many at a time: the terms that a backward adds, what a reduction may round, and whether what is
// stored lies within its bound. Each element has the same operations in the same order on every instruction set, so that all give the same bits.
//
// Arrays are of n neighbouring elements, in fp64; none overlaps another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ref/bounded.h"

namespace gradledger::ref {

// A sum, and how far off a correct one may be. Without errors: exact.
struct Sums {
  double* value = nullptr;
  double* error = nullptr;
};

struct Summed {
  const double* value = nullptr;
  const double* error = nullptr;
};

// One contribution, on its way into its rank's own sum.
struct Terms {
  const double* gradient = nullptr;
  const double* gradient_error = nullptr;  // of a producer that computes gradients itself, if any
  double weight = 1;
  double weight_error = 0;  // relative
  double divisor = 1;       // of the sum over ranks
  Rounding deposit, accumulate;
  std::uint64_t more_than_computed = 0;  // the bits of a significand in fp64 that the dtype of autograd has not
};

// Of one backward, the terms of all ranks that count, each divided as the average is. Nothing: terms are exact, or this one does not count.
struct Fresh {
  double* magnitude = nullptr;  // sum of |term|
  double* error = nullptr;      // sum of the terms' errors
  double* terms = nullptr;      // how many are not zero
};

// average: gets the terms too, where they count. since: a second sum that does, if any.
void add_terms(const Terms& terms, Sums local, Sums since, double* average, Fresh fresh, std::size_t n);

// into += terms with errors of their own, but for those that are zero and exact. first_is_exact: a format that a sum begins in has all of its first term.
void add_sums(Summed terms, Rounding accumulate, bool first_is_exact, Sums into, std::size_t n);

// What reducing a parameter over ranks may round: casting to the wire and back, the division by the world, and adding so many values in any order. Each
// partial sum is at most the sum of magnitudes. Ranks that have parts of one gradient add these up as they were computed, which the wire may be wider than.
struct Reduction {
  Rounding wire, accumulate, deposit;
  double average_roundings = 0;  // of the division by the world
  double sums_of_share = 0;      // additions between ranks that have parts of one gradient
  double divisor = 1;            // of the sum over ranks
  double ranks = 1;
};

// A backward that is reduced by itself, onto the average so far. error: grows by it.
void reduce_backward(const Reduction& reduction, Fresh fresh, const double* average, double* error, std::size_t n);

// If everything that waits were reduced now, on top of what the last reduction has left. out: at least `least`, if any; it may lie where left_error does.
struct Waiting {
  std::span<const Summed> ranks;
  const double* left_magnitude = nullptr;
  const double* left_error = nullptr;
  const double* average = nullptr;
};
void reduce_waiting(const Reduction& reduction, const Waiting& waiting, const double* least, double* out, std::size_t n);

// What a snapshot holds of a parameter, and what is due of it: stored = true x factor x scale.
struct Held {
  const double* stored = nullptr;
  const double* stored_error = nullptr;  // if any
  const double* due = nullptr;
  const double* due_error = nullptr;  // in bounded mode
  double factor = 1, factor_error = 0, scale = 1;
  double least_error = 0;

  double expected(std::size_t i) const { return due[i] * factor * scale; }
  double bound(std::size_t i) const;
  Held from(std::size_t i) const {
    Held rest = *this;
    for (const double** at : {&rest.stored, &rest.stored_error, &rest.due, &rest.due_error})
      if (*at) *at += i;
    return rest;
  }
};

// How many elements, from the first on, are within finite bounds of what is finite, up to one that is not. tightest: grows to the largest error in units of its bound.
std::size_t count_within(const Held& held, std::size_t n, double& tightest);

}  // namespace gradledger::ref
