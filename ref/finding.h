// Findings: what is wrong, named. The table of classes exists here once; help, schema and documentation are held against it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/scenario/predicate.h"
#include "sim/trace/observation.h"

namespace gradledger::ref {

enum class FindingClass : std::uint8_t {
  discarded_gradient,
  offload_loss,
  boundary_leak,
  stale_gradient,
  duplicated_gradient,
  missing_reduction,
  wrong_scale,
  wrong_group,
  misplaced_shard,
  rank_divergence,
  rounding_excess,
  wrong_skip,
  wrong_norm,
  nonfinite_missed,
  deadlock,
  collective_mismatch,
  unwritten_memory,
  engine_error,
  stream_race,
  surplus_communication,
};

struct FindingClassInfo {
  FindingClass finding;
  std::string_view name;
  std::string_view meaning;
  std::string_view seen_as;  // its mark in the ledger or the trace
};

std::span<const FindingClassInfo> finding_classes();
std::string_view name_of(FindingClass finding);
std::optional<FindingClass> finding_class_named(std::string_view name);
// By how much contributions weigh. The table has these first.
constexpr bool is_named_by_weights(FindingClass finding) { return finding <= FindingClass::misplaced_shard; }

// A contribution whose weight is not what it must be.
struct Miscounted {
  Contribution contribution;
  double expected = 0;
  double observed = 0;

  bool operator==(const Miscounted&) const = default;
};

// Elements [begin, end) of a parameter.
struct ElementRange {
  std::uint32_t parameter = 0;
  std::uint64_t begin = 0, end = 0;

  bool operator==(const ElementRange&) const = default;
};

struct WorstElement {
  std::uint32_t parameter = 0;
  std::uint64_t element = 0;
  double observed = 0;  // as stored, loss scale included
  double expected = 0;
  double bound = 0;  // 0: the comparison is exact
  std::uint64_t bits = 0;
  Dtype dtype = Dtype::float32;

  double error() const;
};

// A scalar that a step used or reported.
struct Quantity {
  std::string_view name;  // "global_grad_norm"
  double observed = 0;
  double due = 0;
  double bound = 0;  // 0: the comparison is exact
};

// Operations that nothing orders, and a schedule in which that changes what is computed.
struct Race {
  RaceRecord record;
  std::uint32_t others = 0;                    // further pairs of the same window and rank
  std::vector<RaceRecord> further;             // these
  std::optional<std::uint64_t> schedule_seed;  // its values differ from those of the enqueued order
  std::uint32_t schedules_tried = 0;
};

enum class Whose : std::uint8_t { usage, framework };
std::string_view name_of(Whose whose);

// Whether the script loses what is lost in a framework without defects too. Filled in by whoever knows what the framework documents.
struct Blame {
  Whose whose = Whose::framework;
  std::string rule;  // of documented use, that is broken; empty: none that matters
  std::string why;   // sentences
};

// A defect that is known, in words. Filled in likewise.
struct KnownDefect {
  std::string entry, name, title, origin;  // of the catalogue
  std::string since, fixed;                // releases; "": it is not known, or in none
  std::string avoid;                       // a sentence, if one is known
  std::uint32_t ranks = 0;                 // of the runs that showed it: the first so many, where all of them would have been too many
};

struct Finding {
  FindingClass finding = FindingClass::discarded_gradient;
  std::uint32_t step = 0;
  std::uint32_t event = 0;
  std::uint32_t rank = 0;
  std::string buffer;
  Role role = Role::scratch;
  std::vector<ElementRange> elements;
  std::vector<Miscounted> contributions;
  std::vector<Contribution> alike;  // with the same data as some of these, in a run that is over: what is wrong may be of them
  std::vector<Contribution> open;   // of these elements too, with weights that the runs do not tell
  bool varies = false;              // not all of them in all of the elements, or with other weights in some
  std::optional<WorstElement> worst;
  std::optional<Quantity> quantity;
  std::uint32_t first_event = 0;     // the first at which the books did not balance in this way
  double lost_weight = 0;            // share of the window's expected weight that is missing
  double excess_weight = 0;          // share that is too much
  std::vector<std::string> also_in;  // other buffers of the rank that show it
  std::optional<Race> race;          // of a stream-race
  std::string as_if;                 // of weights: the normalisation that has them, in words
  std::optional<Blame> blame;
  std::optional<KnownDefect> known;
  bool too_large = false;  // the run, to be judged again for the defect that is known
  std::string sentence;    // what a reviewer can quote
};

}  // namespace gradledger::ref
