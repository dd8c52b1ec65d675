// A condition on contributions, as users write it: "micro_batch < 3", "rank == 1 and step > 0", "micro_batch == last".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/result.h"

namespace gradledger {

// One contribution: the gradient that a rank's micro-batch (numbered within its window) gives to an optimizer step.
struct Contribution {
  std::uint32_t step = 0;
  std::uint32_t rank = 0;
  std::uint32_t micro_batch = 0;

  auto operator<=>(const Contribution&) const = default;
};

class Predicate {
 public:
  // Grammar: term ("and" term)*; term: ("micro_batch" | "rank" | "step") (< | <= | == | != | >= | >) (number | "last").
  // "last" is the last micro-batch of the window and goes with micro_batch alone. Spaces are free where words stay apart. Empty text
  // is always true.
  static Result<Predicate> parse(std::string_view text, std::string_view where);

  // `micro_batches` is the number of micro-batches in the contribution's window on its rank.
  bool holds(const Contribution& contribution, std::uint32_t micro_batches) const;

  const std::string& text() const { return text_; }
  bool operator==(const Predicate& other) const { return text_ == other.text_; }

 private:
  enum class Field : std::uint8_t { micro_batch, rank, step };
  enum class Comparison : std::uint8_t { less, less_equal, equal, not_equal, greater_equal, greater };
  struct Term {
    Field field;
    Comparison comparison;
    bool last = false;
    std::uint32_t value = 0;
  };

  std::string text_;
  std::vector<Term> terms_;
};

}  // namespace gradledger
