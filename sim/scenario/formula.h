// What a loop multiplies a loss or a gradient by: a product of numbers and of counts of the window, "world*tokens/tokens_of_window".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/rational.h"
#include "sim/base/result.h"
#include "sim/scenario/groups.h"

namespace gradledger {

// What a factor may be beside a number.
enum class Count : std::uint8_t {
  number,
  tokens,            // of the micro-batch itself; for the loss of a backward alone
  tokens_of_rank,    // of all micro-batches that the rank runs in the window
  tokens_of_window,  // of all ranks
  tokens_of,         // of the ranks of a group, the rank's own one
  micro_batches_of_rank,
  micro_batches_of_window,
  micro_batches_of,
  world,    // ranks
  size_of,  // ranks of a group
};

struct Factor {
  Count count = Count::number;
  std::uint32_t number = 1;
  std::string group;  // of tokens_of, micro_batches_of, size_of
  bool divides = false;

  bool operator==(const Factor&) const = default;
};

// What one window has.
struct WindowCounts {
  std::vector<std::uint64_t> tokens, micro_batches;  // by rank
};

class Formula {
 public:
  Formula() = default;
  explicit Formula(const Rational& number);

  // Grammar: factor { ("*" | "/") factor }. Errors name what is wrong and what is known.
  static Result<Formula> parse(std::string_view text, const std::string& where);

  bool is_one() const;
  bool counts_tokens() const;
  bool of_a_micro_batch() const;  // `tokens` is among its factors
  std::span<const Factor> factors() const { return factors_; }
  std::string text() const;

  // For one rank, and one micro-batch with its tokens. Errors: a division by 0, a value that is too fine.
  Result<Rational> evaluate(const Groups& groups, const WindowCounts& window, std::uint32_t rank, std::uint64_t tokens, const std::string& where) const;

  bool operator==(const Formula&) const = default;

 private:
  std::vector<Factor> factors_;  // none: 1
};

}  // namespace gradledger
