// Mismatches in the order of their snapshots.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "ref/judge.h"

namespace gradledger::ref {

// By key; of one key as they came. A defect of every rank and event has as many of them, so each moves once.
inline void sort_by_key(std::vector<Mismatch>& mismatches) {
  std::vector<std::size_t> order(mismatches.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto before = [&](std::size_t a, std::size_t b) { return mismatches[a].key < mismatches[b].key; };
  if (std::is_sorted(order.begin(), order.end(), before)) return;
  std::stable_sort(order.begin(), order.end(), before);
  std::vector<Mismatch> sorted;
  sorted.reserve(order.size());
  for (const std::size_t i : order) sorted.push_back(std::move(mismatches[i]));
  mismatches = std::move(sorted);
}

}  // namespace gradledger::ref
