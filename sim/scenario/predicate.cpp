#include "sim/scenario/predicate.h"

#include <array>
#include <charconv>
#include <sstream>
#include <utility>

#include "sim/base/limits.h"

namespace gradledger {
namespace {

template <class Enum, std::size_t N>
bool match(const std::array<std::pair<std::string_view, Enum>, N>& table, std::string_view word, Enum& out) {
  for (const auto& [name, value] : table)
    if (name == word) {
      out = value;
      return true;
    }
  return false;
}

}  // namespace

Result<Predicate> Predicate::parse(std::string_view text, std::string_view where) {
  constexpr std::array<std::pair<std::string_view, Field>, 3> fields{
      {{"micro_batch", Field::micro_batch}, {"rank", Field::rank}, {"step", Field::step}}};
  constexpr std::array<std::pair<std::string_view, Comparison>, 6> comparisons{{{"<", Comparison::less},
                                                                               {"<=", Comparison::less_equal},
                                                                               {"==", Comparison::equal},
                                                                               {"!=", Comparison::not_equal},
                                                                               {">=", Comparison::greater_equal},
                                                                               {">", Comparison::greater}}};
  const auto wrong = [&] {
    return InputError{std::string(where), "cannot read the condition \"" + std::string(text) +
                                              "\"; expected terms such as \"micro_batch < 3\", \"rank == 1\", \"step > 0\" or "
                                              "\"micro_batch == last\", joined by \"and\""};
  };
  if (text.size() > limits::condition_length_max)
    return InputError{std::string(where), "is a condition of " + std::to_string(text.size()) + " characters; expected at most " +
                                              std::to_string(limits::condition_length_max)};
  Predicate out;
  out.text_ = std::string(text);
  std::istringstream words{out.text_};
  std::string field, comparison, value, joint;
  if (!(words >> field)) return out;
  while (true) {
    Term term{};
    if (!(words >> comparison >> value) || !match(fields, field, term.field) || !match(comparisons, comparison, term.comparison))
      return wrong();
    if (value == "last") {
      if (term.field != Field::micro_batch) return wrong();
      term.last = true;
    } else {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), term.value);
      if (error != std::errc{} || end != value.data() + value.size()) return wrong();
    }
    out.terms_.push_back(term);
    if (!(words >> joint)) return out;
    if (joint != "and" || !(words >> field)) return wrong();
  }
}

bool Predicate::holds(const Contribution& contribution, std::uint32_t micro_batches) const {
  for (const Term& term : terms_) {
    const std::uint32_t left = term.field == Field::rank   ? contribution.rank
                               : term.field == Field::step ? contribution.step
                                                           : contribution.micro_batch;
    const std::uint32_t right = term.last ? micro_batches - 1 : term.value;
    bool holds = false;
    switch (term.comparison) {
      case Comparison::less: holds = left < right; break;
      case Comparison::less_equal: holds = left <= right; break;
      case Comparison::equal: holds = left == right; break;
      case Comparison::not_equal: holds = left != right; break;
      case Comparison::greater_equal: holds = left >= right; break;
      case Comparison::greater: holds = left > right; break;
    }
    if (!holds) return false;
  }
  return true;
}

}  // namespace gradledger
