// Many words of one length, and the states that they lead to: packed, since there are millions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "search/sequences/alphabet.h"
#include "search/sequences/state_key.h"

namespace gradledger::search {

using WordView = std::span<const std::uint8_t>;

class Words {
 public:
  explicit Words(std::uint32_t length) : length_(length) {}

  std::uint32_t length() const { return length_; }
  std::size_t size() const { return size_; }
  WordView operator[](std::size_t i) const { return {letters_.data() + i * length_, length_}; }
  void add(WordView word) {
    letters_.insert(letters_.end(), word.begin(), word.end());
    ++size_;
  }
  // By their letters.
  void sort();
  // Those of these numbers, in this order.
  Words chosen(const std::vector<std::uint32_t>& numbers) const;

 private:
  std::uint32_t length_;
  std::size_t size_ = 0;
  std::vector<std::uint8_t> letters_;
};

// The states that words of one length lead to. Of the words that lead to one the smallest is kept, whatever came first.
class Arrivals {
 public:
  explicit Arrivals(std::uint32_t length) : words_(length) {}

  void add(const StateKey& key, WordView word);
  // How many came, and to how many states.
  std::uint64_t added() const { return added_; }
  // Each state once, sorted by its key.
  void settle();
  const std::vector<StateKey>& keys() const { return keys_; }
  const Words& words() const { return words_; }

 private:
  std::uint64_t added_ = 0;
  std::size_t settled_ = 0;
  std::vector<StateKey> keys_;
  Words words_;
};

// The states of all levels so far.
class Met {
 public:
  bool has(const StateKey& key) const;
  // Those of a further level. Precondition: sorted.
  void add(std::vector<StateKey> level) { levels_.push_back(std::move(level)); }

 private:
  std::vector<std::vector<StateKey>> levels_;
};

}  // namespace gradledger::search
