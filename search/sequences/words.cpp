#include "search/sequences/words.h"

#include <algorithm>
#include <numeric>

#include "sim/base/contract.h"

namespace gradledger::search {
namespace {

std::vector<std::uint32_t> numbers_of(std::size_t count) {
  expects(count < never, "more words than numbers for them");
  std::vector<std::uint32_t> out(count);
  std::iota(out.begin(), out.end(), 0u);
  return out;
}

bool less(WordView a, WordView b) { return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end()); }

}  // namespace

Words Words::chosen(const std::vector<std::uint32_t>& numbers) const {
  Words out(length_);
  out.letters_.reserve(numbers.size() * length_);
  for (const std::uint32_t number : numbers) out.add((*this)[number]);
  return out;
}

void Words::sort() {
  std::vector<std::uint32_t> order = numbers_of(size_);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return less((*this)[a], (*this)[b]); });
  *this = chosen(order);
}

void Arrivals::add(const StateKey& key, WordView word) {
  constexpr std::size_t worth_it = 1u << 16;
  if (keys_.size() >= 2 * settled_ + worth_it) settle();
  ++added_;
  keys_.push_back(key);
  words_.add(word);
}

void Arrivals::settle() {
  std::vector<std::uint32_t> order = numbers_of(keys_.size());
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return keys_[a] != keys_[b] ? keys_[a] < keys_[b] : less(words_[a], words_[b]); });
  order.erase(std::unique(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return keys_[a] == keys_[b]; }), order.end());
  std::vector<StateKey> keys;
  keys.reserve(order.size());
  for (const std::uint32_t number : order) keys.push_back(keys_[number]);
  words_ = words_.chosen(order);
  keys_ = std::move(keys);
  settled_ = keys_.size();
}

bool Met::has(const StateKey& key) const {
  // A state is met again soon or never.
  return std::any_of(levels_.rbegin(), levels_.rend(), [&](const std::vector<StateKey>& level) { return std::binary_search(level.begin(), level.end(), key); });
}

}  // namespace gradledger::search
