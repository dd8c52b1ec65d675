// Names for rows of the ledger that do not balance.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "ref/finding.h"
#include "ref/ledger.h"

namespace gradledger::ref {

struct Diagnosis {
  FindingClass finding;
  std::vector<Miscounted> contributions;
  std::string as_if;  // the normalisation that has these weights, in words; empty: none that is known
};

// A way to weigh the contributions of a window that loops are known to use.
struct Normalisation {
  std::string name;             // "every micro-batch counts alike"
  std::vector<double> weights;  // by column, up to a common factor
};

// What the window looked like to a rank, for the cases that coefficients alone leave open.
struct RowContext {
  bool documented = false;               // windows are the documentation's, not the loop's
  const GradientShare* share = nullptr;  // of the row's parameter, where ranks have parts of its gradient; null: nobody has
  double average_divisor = 1;
  std::uint32_t rank = 0;  // whose row it is
  std::uint32_t step = 0;
  std::uint32_t world = 1;
  std::uint32_t micro_batches = 0;            // of the window, on this rank
  bool local = false;                         // a local accumulator: peers do not belong
  bool host_accumulator = false;              // optimizer offload
  bool reduced = false;                       // a gradient collective ran in the window
  double tolerance = 0;                       // of coefficients; 0: they are exact
  bool places_told = false;                   // elements out of place were found otherwise
  bool wide = false;                          // they are quotients of whatever whole numbers
  std::vector<Normalisation> normalisations;  // to be told apart where weights differ within the window
  std::set<std::uint32_t> boundary;           // micro-batches of the window that ran at a gradient accumulation boundary, on this rank
  bool one_factor = false;                    // several elements, all of them off by one and the same factor: none of them is another one
};

// Whether every contribution of a window is off by one factor in all rows, which hold several elements.
bool off_by_one_factor(const std::vector<LedgerRow>& rows, const std::vector<LedgerColumn>& columns, std::uint32_t step);

// Ratios of right and wrong weights are dyadic with few bits where every divisor is: sums, doublings, missing scales. Elements out of place
// give ratios of two different odd probes, which never are.
bool short_dyadic(double ratio);

// Diagnoses of one row; empty where it balances.
std::vector<Diagnosis> diagnose(const LedgerRow& row, const std::vector<LedgerColumn>& columns, const RowContext& context);

}  // namespace gradledger::ref
