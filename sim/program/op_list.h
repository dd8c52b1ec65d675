// The operations of a program, by number. Those that ran and that nobody asks for again can be let go; the others keep their numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/contract.h"

namespace gradledger {

template <class Op>
class OpList {
 public:
  // Those that were let go count too.
  std::size_t size() const { return forgotten_ + kept_.size(); }
  std::size_t forgotten() const { return forgotten_; }
  std::size_t capacity() const { return kept_.capacity(); }

  // Precondition: it was not let go.
  Op& operator[](std::size_t number) { return kept_[number - forgotten_]; }
  const Op& operator[](std::size_t number) const { return kept_[number - forgotten_]; }

  // Over all. Precondition: none was let go.
  auto begin() const { return whole().begin(); }
  auto end() const { return whole().end(); }
  auto begin() {
    expects(forgotten_ == 0, "operations are asked for that were let go");
    return kept_.begin();
  }
  auto end() { return kept_.end(); }

  // Room for so many: a list that doubles in the middle of them may stay half empty.
  void reserve_more(std::size_t count) {
    const std::size_t has = kept_.capacity();
    if (kept_.size() + count > has) kept_.reserve(std::max(kept_.size() + count, has + has / 4));
  }

  Op& emplace_back() { return kept_.emplace_back(); }
  void push_back(const Op& op) { kept_.push_back(op); }

  // Those below this number may be let go. It happens once they are as many as the others, so that each is moved about once.
  bool forget_before(std::size_t number) {
    const std::size_t over = number - forgotten_;
    if (over == 0 || over < kept_.size() - over) return false;
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(over));
    forgotten_ = number;
    return true;
  }

  // Those from this number on were never written. Precondition: none of them was let go.
  void cut(std::size_t number) { kept_.resize(number - forgotten_); }

  void clear() {
    kept_.clear();
    forgotten_ = 0;
  }

 private:
  const std::vector<Op>& whole() const {
    expects(forgotten_ == 0, "operations are asked for that were let go");
    return kept_;
  }

  std::vector<Op> kept_;
  std::size_t forgotten_ = 0;
};

}  // namespace gradledger
