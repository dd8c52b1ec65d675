// Formats of reports: the table of them, and what each has to show. A format knows the values of this room and nothing of how they came about.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "report/audit.h"
#include "report/conform.h"
#include "report/corpus.h"
#include "report/layout.h"
#include "report/report.h"
#include "report/runs.h"
#include "report/searches.h"
#include "report/shards.h"
#include "report/summary.h"
#include "report/version/version.h"

namespace gradledger::report {

// A text for each value; an empty one where the format has nothing to say of it. Rows come as they are found, the whole that they are of last.
class Renderer {
 public:
  virtual ~Renderer() = default;

  // Before the first result of a search, and between two replays.
  virtual std::string head(const std::string&) const { return ""; }
  virtual std::string between() const { return ""; }

  virtual std::string text(const Report&) const { return ""; }
  virtual std::string text(const AccountingReport&) const { return ""; }
  virtual std::string text(const AccountingSummary&) const { return ""; }
  virtual std::string text(const ProducersReport&) const { return ""; }

  virtual std::string text(const GateRow&) const { return ""; }
  virtual std::string text(const GateReport&) const { return ""; }
  virtual std::string text(const MutantReport&) const { return ""; }
  virtual std::string text(const CoverageReport&) const { return ""; }
  virtual std::string text(const Listing&) const { return ""; }

  virtual std::string text(const TraceRow&) const { return ""; }
  virtual std::string text(const ConformRow&) const { return ""; }
  virtual std::string text(const ConformSummary&) const { return ""; }
  virtual std::string text(const NotJudgedRow&) const { return ""; }
  virtual std::string text(const JudgeSummary&) const { return ""; }

  virtual std::string text(const FoundRow&) const { return ""; }
  virtual std::string text(const FuzzReport&) const { return ""; }
  virtual std::string text(const DifferenceRow&) const { return ""; }
  virtual std::string text(const DifferSummary&) const { return ""; }
  virtual std::string text(const HuntHead&) const { return ""; }
  virtual std::string text(const HuntRow&) const { return ""; }
  virtual std::string text(const HuntSummary&) const { return ""; }
  virtual std::string text(const ExploreReport&) const { return ""; }
  virtual std::string text(const OrdersReport&) const { return ""; }

  virtual std::string text(const AuditReport&) const { return ""; }

  virtual std::string text(const ShardRow&) const { return ""; }
  virtual std::string text(const JudgedRow&) const { return ""; }
  virtual std::string text(const MergedGateRow&) const { return ""; }
  virtual std::string text(const MergedExploration&) const { return ""; }
  virtual std::string text(const MergeReport&) const { return ""; }

  // For programs; people read errors on standard error.
  virtual std::string text(const ErrorRow&) const { return ""; }
  virtual std::string text(const Summary&) const { return ""; }
};

enum class Detail : std::uint8_t { verdict, normal, all };

struct Style {
  bool colour = false;
  std::size_t width = any_width;  // of a line
  Detail detail = Detail::normal;
};

// What every record says of the run that it is of.
struct Origin {
  Version tool = version();
  std::string command;  // repeats the run; records of one scenario have one of their own
};

struct Format {
  std::string_view name;  // as --format takes it
  std::string_view what;
  std::unique_ptr<Renderer> (*make)(const Style& style, const Origin& origin);
};

// The first one is what is printed where none is asked for.
std::span<const Format> formats();

// Null where there is no such format.
std::unique_ptr<Renderer> renderer(std::string_view format, const Style& style, const Origin& origin = {});

}  // namespace gradledger::report
