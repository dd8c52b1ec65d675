// What of an engine decides what it does next, folded into one word: host state, and what the tensors it holds contain. Two ranks whose
// words are equal do the same from here on. What no decision and no accumulator depends on stays out: weights, moments, norms.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "sim/base/hash.h"
#include "sim/engine/tensors.h"

namespace gradledger {

class StateFold {
 public:
  // contents: a hash of a stretch of memory, unwritten elements included.
  explicit StateFold(std::function<std::uint64_t(Slice)> contents) : contents_(std::move(contents)) {}

  void number(std::uint64_t word) { hash_.add(word); }
  void flag(bool value) { hash_.add(value ? 1 : 2); }
  void flags(const std::vector<bool>& values) {
    for (const bool value : values) flag(value);
  }
  void flag(const std::optional<bool>& value) { hash_.add(!value ? 3 : *value ? 1 : 2); }

  // Buffers are named by the order in which they are met, so that a new one in an old one's place is the same state.
  void slice(Slice s) {
    if (s.buffer == no_index) return number(0);
    const auto [at, fresh] = met_.try_emplace(s.buffer, met_.size() + 1);
    number(at->second);
    number(s.offset);
    number(s.numel);
    number(contents_(s));
  }
  void tensor(const Tensor& t) { slice(t.slice); }
  void tensors(const std::vector<Tensor>& all) {
    number(all.size());
    for (const Tensor& t : all) tensor(t);
  }
  void slices(const std::vector<Slice>& all) {
    for (const Slice s : all) slice(s);
  }

  std::uint64_t value() const { return hash_.value(); }

 private:
  std::function<std::uint64_t(Slice)> contents_;
  std::map<BufferId, std::uint64_t> met_;
  TraceHash hash_;
};

}  // namespace gradledger
