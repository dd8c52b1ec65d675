#include "sim/scenario/predicate.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <nlohmann/json.hpp>

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

// Splits a condition into words: runs of letters, digits and underscores, or runs of anything else, with or without spaces between.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  // Empty at the end.
  std::string_view next() {
    constexpr std::string_view spaces = " \t\n\r\v\f";
    at_ = std::min(text_.find_first_not_of(spaces, at_), text_.size());
    const std::size_t begin = at_;
    while (at_ < text_.size() && spaces.find(text_[at_]) == std::string_view::npos && of_name(text_[at_]) == of_name(text_[begin])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

 private:
  static bool of_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::string quoted(std::string_view text) { return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

}  // namespace

Result<Predicate> Predicate::parse(std::string_view text, std::string_view where) {
  constexpr std::array<std::pair<std::string_view, Field>, 3> fields{{{"micro_batch", Field::micro_batch}, {"rank", Field::rank}, {"step", Field::step}}};
  constexpr std::array<std::pair<std::string_view, Comparison>, 6> comparisons{{{"<", Comparison::less},
                                                                                {"<=", Comparison::less_equal},
                                                                                {"==", Comparison::equal},
                                                                                {"!=", Comparison::not_equal},
                                                                                {">=", Comparison::greater_equal},
                                                                                {">", Comparison::greater}}};
  if (text.size() > limits::condition_length_max)
    return InputError{std::string(where), "is a condition of " + std::to_string(text.size()) + " characters; expected at most " + std::to_string(limits::condition_length_max)};
  const auto wrong = [&](std::string_view word, const std::string& expected) {
    return InputError{std::string(where), "cannot read the condition " + quoted(text) + (word.empty() ? " at its end" : " at " + quoted(word)) + "; expected " + expected +
                                              ", in terms such as \"micro_batch < 3\", \"rank == 1\" or \"micro_batch == last\", joined by \"and\""};
  };
  Predicate out;
  out.text_ = std::string(text);
  Words words(out.text_);
  std::string_view word = words.next();
  if (word.empty()) return out;
  while (true) {
    Term term{};
    if (!match(fields, word, term.field)) return wrong(word, "micro_batch, rank or step");
    if (word = words.next(); !match(comparisons, word, term.comparison)) return wrong(word, "one of <, <=, ==, !=, >=, >");
    word = words.next();
    if (word == "last" && term.field == Field::micro_batch) {
      term.last = true;
    } else {
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), term.value);
      if (word.empty() || error != std::errc{} || end != word.data() + word.size())
        return wrong(word, term.field == Field::micro_batch ? "a number from 0 to 4294967295 or \"last\"" : "a number from 0 to 4294967295");
    }
    out.terms_.push_back(term);
    if (word = words.next(); word.empty()) return out;
    if (word != "and") return wrong(word, "\"and\" or the end");
    word = words.next();
  }
}

bool Predicate::holds(const Contribution& contribution, std::uint32_t micro_batches) const {
  for (const Term& term : terms_) {
    const std::uint32_t left = term.field == Field::rank ? contribution.rank : term.field == Field::step ? contribution.step : contribution.micro_batch;
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
