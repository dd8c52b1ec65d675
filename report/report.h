// What a replay has to say, as a value: made once from a verdict, and shown by every format. Whoever reads it needs no scenario beside it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ref/oracle.h"
#include "report/finding.h"
#include "report/lanes.h"
#include "sim/accounting.h"
#include "sim/scenario/overrides.h"
#include "sim/scenario/scenario.h"

namespace gradledger::report {

// What ranks did and held in one event, all of them the same.
struct EventLine {
  struct Buffer {
    std::string name;
    Role role = Role::scratch;
    std::optional<double> norm;  // of its parameter elements, in true units; of a run on numbers
    bool at_end = true;          // of the event, not within it
    bool wrong = false;          // the books of this snapshot do not balance

    bool operator==(const Buffer&) const = default;
  };
  struct Record {
    std::vector<Buffer> buffers;
    std::vector<std::string> collectives;
    std::vector<std::pair<StepFact, double>> facts;
  };
  std::uint32_t event = 0;
  std::vector<std::uint32_t> ranks;      // ascending
  std::string what;                      // "step (call 1 of 4)"
  std::shared_ptr<const Record> record;  // which events may share: a real model has hundreds of buffers, and a window hundreds of events
};

// A value that no arithmetic makes, put into the gradient of one micro-batch.
struct Planted {
  double value = 0;
  std::string parameter;
  Contribution at;
};

enum class Outcome : std::uint8_t { clean, findings, nothing_judged };
std::string_view name_of(Outcome outcome);

struct Statistics {
  ref::JudgeStatistics ledger, values, parameters;
};

struct Report {
  std::string command;  // repeats the run

  // What was judged.
  std::string scenario, file, note;
  std::vector<std::string> driver_notes;     // what the driver of a real framework replaced by something like it
  std::string framework, engine, described;  // described: the configuration in a few words
  AsOf as_of;
  std::uint32_t world_size = 0;
  std::vector<std::string> parameters;  // names; elements name them by number
  std::uint64_t elements = 0;
  Dtype model_dtype = Dtype::float32;
  std::string producer;
  std::uint64_t seed = 0;
  std::string identity;             // content_identity()
  std::vector<Override> overrides;  // said in place of what the file says
  double seconds = 0;               // that it took; filled in by whoever has a clock
  std::vector<Planted> planted;

  // What was seen. Events are there unless a summary was asked for.
  bool in_short = false;
  std::vector<EventLine> events;
  std::vector<ref::AppliedRow> ledger;
  std::vector<Finding> findings;
  bool open = false;  // the script ends with gradients that no step has applied

  std::vector<std::string> trace_lacks;  // of a trace: what none of its passes shows

  // Of a run that is over.
  bool one_pass = false;
  std::string left_out;           // what of it is not judged, and why; empty: all of it is
  std::uint64_t unexplained = 0;  // snapshots that are wrong in a way that no weights explain

  // What that rests on, and what was not judged.
  ref::Coverage coverage;
  bool exact = true;  // probes were held to equality
  std::uint32_t contributions = 0, contributions_not_decoded = 0;
  ref::InconclusiveRows inconclusive_rows;
  std::uint64_t not_taken_apart = 0, not_listed = 0;  // past the limit of one ledger: wrong snapshots, applied gradients
  std::vector<std::string> runs_leave_out;            // what the runs of the judgement do not judge, in sentences
  bool symbolic = false;                              // weights are of one exact run on linear forms, else of fingerprint and decode passes
  std::uint32_t fingerprint_passes = 0, decode_passes = 0, value_passes = 0;
  Statistics statistics;

  // Of the primary pass. collectives: purpose -> [rank][window].
  std::map<std::string, std::vector<std::vector<std::uint32_t>>> collectives;
  RunSummary run;

  // Of a dry run; there where a page or a chart was asked for.
  std::optional<Lanes> lanes;
  std::optional<Accounting> accounting;

  Outcome outcome() const;
  FoundIn found_in() const;
};

}  // namespace gradledger::report
