// Judges a wrapper in this process: every micro-batch of every rank must have the weight that the scenario's contract gives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "gradledger/scenario.h"
#include "gradledger/version.h"
#include "gradledger/wrapper.h"

namespace gradledger::GRADLEDGER_API {

// The gradient of one micro-batch of one rank, and the weight with which it was counted.
struct Contribution {
  std::uint32_t step = 0, rank = 0, micro_batch = 0;
  double expected = 0, observed = 0;
  bool misplaced = false;  // in a row of the ledger: what is due of other elements is there, beside what is observed
  bool open = false;       // likewise: how much is there is not told, and what is due stands as observed
};

// Elements [begin, end) of a parameter.
struct Elements {
  std::string parameter;
  std::uint64_t begin = 0, end = 0;
};

// The keys of findings in JSON (docs/schemas/common.schema.json); its "class" is `finding_class`, as in Python.
struct Finding {
  std::string finding_class;  // "missing-reduction": `gradledger list classes` explains them
  std::uint32_t step = 0, event = 0, first_event = 0, rank = 0;
  std::string pointer;  // to the entry of the script
  std::string buffer, role;
  std::vector<Elements> elements;
  std::vector<Contribution> contributions;
  double lost_weight = 0, excess_weight = 0;
  std::string sentence;
};

// A row of the ledger: elements of what a rank applied, and the weight of each contribution in them.
struct LedgerRow {
  std::uint32_t step = 0, event = 0, rank = 0;
  std::string buffer;
  std::vector<Elements> elements;
  std::vector<Contribution> contributions;
};

// What a verdict rests on.
struct Coverage {
  std::uint64_t snapshots = 0, judged = 0;  // of gradients
  std::uint32_t windows_closed = 0, windows_judged = 0;
  std::string nothing_judged;  // why; empty: something was
};

struct Report {
  std::string scenario;
  std::vector<Finding> findings;
  std::vector<LedgerRow> ledger;
  Coverage coverage;
  std::string text;  // for people: verdict, findings and ledger, as the command prints them
  std::string json;  // for programs: a record as `gradledger replay --json` prints it

  // Nothing found, and something judged.
  bool clean() const { return findings.empty() && judged(); }
  bool judged() const { return !findings.empty() || coverage.nothing_judged.empty(); }
};
std::ostream& operator<<(std::ostream& out, const Report& report);  // the text

struct Options {
  std::uint64_t seed = 0;                               // of the data, and of the order in which ranks get their turns
  std::uint64_t memory_limit = std::uint64_t{8} << 30;  // bytes of a judgement
  std::string_view headers = GRADLEDGER_VERSION;        // that the program was compiled with
};

// Throws BadInput, NotRun and BrokenRun, where there is no verdict. What the wrapper throws in an event is a finding. std::bad_alloc and std::system_error leave it too, where
// memory or threads run out; another std::logic_error is a mistake of gradledger's. Runs in several threads at once do not disturb each other.
Report run(const Scenario& scenario, const Ranks& wrapper, const Options& options = {});
Report run(const Scenario& scenario, const Worlds& wrapper, const Options& options = {});

}  // namespace gradledger::GRADLEDGER_API
