#include "sim/scenario/formula.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "sim/base/limits.h"
#include "sim/scenario/spelling.h"

namespace gradledger {
namespace {

struct Word {
  std::string_view name;
  Count count;
  bool of_group = false;  // followed by "(GROUP)"
};

constexpr std::array<Word, 9> words{{
    {"tokens", Count::tokens},
    {"tokens_of_rank", Count::tokens_of_rank},
    {"tokens_of_window", Count::tokens_of_window},
    {"tokens_of", Count::tokens_of, true},
    {"micro_batches_of_rank", Count::micro_batches_of_rank},
    {"micro_batches_of_window", Count::micro_batches_of_window},
    {"micro_batches_of", Count::micro_batches_of, true},
    {"world", Count::world},
    {"size_of", Count::size_of, true},
}};

std::string known() {
  std::string out = "whole numbers";
  for (const Word& word : words) out += ", " + std::string(word.name) + (word.of_group ? "(GROUP)" : "");
  return out;
}

// Reads a formula from left to right.
class Reader {
 public:
  Reader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Result<std::vector<Factor>> read() {
    std::vector<Factor> out;
    for (bool divides = false;;) {
      auto factor = read_factor();
      if (!factor) return factor.error();
      out.push_back(std::move(factor).value());
      out.back().divides = divides;
      if (out.size() > limits::formula_factors_max) return error("has more than " + std::to_string(limits::formula_factors_max) + " factors");
      skip_blanks();
      if (text_.empty()) return out;
      if (text_.front() != '*' && text_.front() != '/') return error("has \"" + std::string(text_.substr(0, 16)) + "\" where * or / is expected");
      divides = text_.front() == '/';
      text_.remove_prefix(1);
    }
  }

 private:
  InputError error(const std::string& what) const { return {where_, what + "; expected a product of " + known() + ", such as \"tokens/tokens_of_window\""}; }

  void skip_blanks() {
    while (text_.starts_with(' ')) text_.remove_prefix(1);
  }

  Result<Factor> read_factor() {
    skip_blanks();
    Factor out;
    if (text_.empty()) return error("ends where a factor is expected");
    if (text_.front() >= '0' && text_.front() <= '9') {
      const auto [end, failed] = std::from_chars(text_.data(), text_.data() + text_.size(), out.number);
      if (failed != std::errc{} || out.number > limits::formula_number_max) return error("has a number above " + std::to_string(limits::formula_number_max));
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      return out;
    }
    const std::string name(text_.substr(0, text_.find_first_not_of("abcdefghijklmnopqrstuvwxyz_")));
    const auto word = std::find_if(words.begin(), words.end(), [&](const Word& w) { return w.name == name; });
    if (word == words.end()) {
      std::vector<std::string> names;
      for (const Word& w : words) names.emplace_back(w.name);
      return error("has \"" + (name.empty() ? std::string(text_.substr(0, 16)) : name) + "\", which is no count" + suggestion(name, names));
    }
    text_.remove_prefix(name.size());
    out.count = word->count;
    if (!word->of_group) return out;
    const std::size_t close = text_.find(')');
    if (!text_.starts_with('(') || close == std::string_view::npos || close == 1) return error("has \"" + name + "\" without its group in brackets");
    out.group = text_.substr(1, close - 1);
    text_.remove_prefix(close + 1);
    return out;
  }

  std::string_view text_;
  const std::string& where_;
};

std::uint64_t sum_over(const std::vector<std::uint64_t>& counts, const std::vector<std::uint32_t>& ranks) {
  std::uint64_t sum = 0;
  for (const std::uint32_t r : ranks) sum += counts[r];
  return sum;
}

std::uint64_t count_of(const Factor& factor, const Groups& groups, const WindowCounts& window, std::uint32_t rank, std::uint64_t tokens) {
  switch (factor.count) {
    case Count::number: return factor.number;
    case Count::tokens: return tokens;
    case Count::tokens_of_rank: return window.tokens[rank];
    case Count::tokens_of_window: return sum_over(window.tokens, groups.of("world", rank));
    case Count::tokens_of: return sum_over(window.tokens, groups.of(factor.group, rank));
    case Count::micro_batches_of_rank: return window.micro_batches[rank];
    case Count::micro_batches_of_window: return sum_over(window.micro_batches, groups.of("world", rank));
    case Count::micro_batches_of: return sum_over(window.micro_batches, groups.of(factor.group, rank));
    case Count::world: return groups.world_size();
    case Count::size_of: return groups.of(factor.group, rank).size();
  }
  return 1;
}

std::string text_of(const Factor& factor) {
  if (factor.count == Count::number) return std::to_string(factor.number);
  const auto word = std::find_if(words.begin(), words.end(), [&](const Word& w) { return w.count == factor.count; });
  return std::string(word->name) + (word->of_group ? "(" + factor.group + ")" : "");
}

}  // namespace

Formula::Formula(const Rational& number) {
  if (number == Rational(1)) return;
  factors_.push_back({.number = static_cast<std::uint32_t>(number.numerator())});
  if (number.denominator() != 1) factors_.push_back({.number = static_cast<std::uint32_t>(number.denominator()), .divides = true});
}

Result<Formula> Formula::parse(std::string_view text, const std::string& where) {
  auto factors = Reader(text, where).read();
  if (!factors) return factors.error();
  Formula out;
  out.factors_ = std::move(factors).value();
  if (out.factors_.size() == 1 && out.factors_.front() == Factor{}) out.factors_.clear();
  return out;
}

bool Formula::is_one() const { return factors_.empty(); }

bool Formula::counts_tokens() const {
  return std::any_of(factors_.begin(), factors_.end(), [](const Factor& f) { return f.count >= Count::tokens && f.count <= Count::tokens_of; });
}

bool Formula::of_a_micro_batch() const {
  return std::any_of(factors_.begin(), factors_.end(), [](const Factor& f) { return f.count == Count::tokens; });
}

std::string Formula::text() const {
  if (factors_.empty()) return "1";
  std::string out = factors_.front().divides ? "1" : "";
  for (const Factor& factor : factors_) out += (out.empty() ? "" : factor.divides ? "/" : "*") + text_of(factor);
  return out;
}

Result<Rational> Formula::evaluate(const Groups& groups, const WindowCounts& window, std::uint32_t rank, std::uint64_t tokens, const std::string& where) const {
  Rational out(1);
  for (const Factor& factor : factors_) {
    const auto count = static_cast<std::int64_t>(count_of(factor, groups, window, rank, tokens));
    if (factor.divides && count == 0) return InputError{where, "divides by " + text_of(factor) + ", which is 0 on rank " + std::to_string(rank) + "; expected a count above 0"};
    const auto product = checked_product(out, factor.divides ? Rational(1, count) : Rational(count));
    if (!product) return InputError{where, "makes a weight of more than 62 bits on rank " + std::to_string(rank) + "; expected smaller numbers"};
    out = *product;
  }
  return out;
}

}  // namespace gradledger
