// The ranks that may go on, of worlds in which moving a list about for each step would be most of the work.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradledger {

class RunnableRanks {
 public:
  explicit RunnableRanks(std::size_t ranks) : words_(ranks / bits + 1, 0), sums_(words_.size() + 1, 0) {}

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  void insert(std::uint16_t rank) {
    std::uint64_t& word = words_[rank / bits];
    const std::uint64_t bit = std::uint64_t{1} << rank % bits;
    if ((word & bit) != 0) return;
    word |= bit;
    count(rank / bits, 1);
  }
  // Precondition: it is there.
  void erase(std::uint16_t rank) {
    words_[rank / bits] &= ~(std::uint64_t{1} << rank % bits);
    count(rank / bits, -1);
  }

  // In order of their numbers. Precondition: index < size().
  std::uint16_t operator[](std::size_t index) const {
    std::size_t word = 0, left = index;
    for (std::size_t step = std::bit_floor(words_.size()); step > 0; step /= 2)
      if (word + step < sums_.size() && sums_[word + step] <= left) {
        word += step;
        left -= sums_[word];
      }
    std::uint64_t rest = words_[word];
    for (; left > 0; --left) rest &= rest - 1;
    return static_cast<std::uint16_t>(word * bits + static_cast<std::size_t>(std::countr_zero(rest)));
  }
  std::vector<std::uint16_t> all() const {
    std::vector<std::uint16_t> out;
    for (std::size_t word = 0; word < words_.size(); ++word)
      for (std::uint64_t rest = words_[word]; rest != 0; rest &= rest - 1)
        out.push_back(static_cast<std::uint16_t>(word * bits + static_cast<std::size_t>(std::countr_zero(rest))));
    return out;
  }

 private:
  static constexpr std::size_t bits = 64;

  void count(std::size_t word, int by) {
    size_ += static_cast<std::size_t>(by);
    for (std::size_t i = word + 1; i < sums_.size(); i += i & (~i + 1)) sums_[i] += static_cast<std::uint32_t>(by);
  }

  std::vector<std::uint64_t> words_;
  std::vector<std::uint32_t> sums_;  // of words, as a binary indexed tree
  std::size_t size_ = 0;
};

}  // namespace gradledger
