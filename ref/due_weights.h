// What a contribution must weigh in a buffer, asked for one after another: what does not depend on the rank is worked out once for a backward, and a
// quotient once for contributions in a row that weigh the same.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/rational.h"
#include "sim/scenario/timeline.h"

namespace gradledger::ref {

struct LedgerColumn;
struct LedgerEntry;

// In the average that a rank applies, or by the documentation; without a parameter where ranks share no gradient.
class AveragedWeights {
 public:
  AveragedWeights(const Timeline& timeline, std::uint32_t on_rank, Layer layer, std::optional<std::uint32_t> parameter = {})
      : timeline_(timeline), on_rank_(on_rank), layer_(layer), parameter_(parameter) {}

  double of(std::uint32_t backward, std::uint32_t rank);

 private:
  const Timeline& timeline_;
  const std::uint32_t on_rank_;
  const Layer layer_;
  const std::optional<std::uint32_t> parameter_;
  Rational last_ = 0;  // which weighs nothing, averaged too
  double averaged_ = 0;
};

// Columns of a snapshot's entry, without weights that were found.
class EntryColumns {
 public:
  EntryColumns(const Timeline& timeline, std::uint32_t on_rank, Layer layer) : timeline_(timeline), averaged_(timeline, on_rank, layer) {}

  LedgerColumn column(std::uint32_t backward, std::uint32_t rank);

 private:
  const Timeline& timeline_;
  AveragedWeights averaged_;
};

// In an element of a parameter in an entry, by the entry's role. skipped: windows of which nothing is due in an applied gradient. All outlive it.
class DueWeights {
 public:
  DueWeights(const Workload& workload, const Timeline& timeline, const std::vector<bool>& skipped, const LedgerEntry& entry, std::uint32_t parameter);

  double of(std::uint32_t backward, std::uint32_t rank);

 private:
  enum class As : std::uint8_t { nothing, own, averaged };

  As as_of(std::uint32_t backward) const;

  const Workload& workload_;
  const Timeline& timeline_;
  const LedgerEntry& entry_;
  const std::uint32_t parameter_;
  const Layer layer_;
  const std::uint32_t last_event_;
  const std::uint32_t own_;  // the rank whose contribution the buffer's rank has as its own
  const bool due_;           // anything
  AveragedWeights averaged_;
  // Of the backward at hand.
  std::uint32_t backward_ = never;
  As as_ = As::nothing;
  bool counts_ = false;  // on every rank that runs it
};

}  // namespace gradledger::ref
