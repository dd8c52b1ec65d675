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

namespace gradledger::report {

// A text for each value; an empty one where the format has nothing to say of it. Rows come as they are found, the whole that they are of last.
class Renderer {
 public:
  virtual ~Renderer() = default;

  // Before the first result of a search, and between two replays.
  virtual std::string head(const std::string& command) const = 0;
  virtual std::string between() const = 0;

  virtual std::string text(const Report& report) const = 0;
  virtual std::string text(const AccountingReport& report) const = 0;
  virtual std::string text(const AccountingSummary& summary) const = 0;
  virtual std::string text(const ProducersReport& report) const = 0;

  // What is for standard error is in no report for people.
  virtual std::string text(const RefusedFile&) const { return ""; }
  virtual std::string text(const GateRow& row) const = 0;
  virtual std::string text(const GateReport& report) const = 0;
  virtual std::string text(const MutantReport& report) const = 0;
  virtual std::string text(const CoverageReport& report) const = 0;
  virtual std::string text(const Listing& listing) const = 0;

  virtual std::string text(const TraceRow& row) const = 0;
  virtual std::string text(const ConformRow& row) const = 0;
  virtual std::string text(const ConformSummary& summary) const = 0;
  virtual std::string text(const NotJudgedRow& row) const = 0;
  virtual std::string text(const JudgeSummary& summary) const = 0;

  // A campaign's findings, each as it is found; nothing where the format shows them with the whole.
  virtual std::string text(const FoundRow&) const { return ""; }
  virtual std::string text(const FuzzReport& report) const = 0;
  virtual std::string text(const DifferenceRow& row) const = 0;
  virtual std::string text(const DifferSummary& summary) const = 0;
  virtual std::string text(const HuntHead& head) const = 0;
  virtual std::string text(const HuntRow& row) const = 0;
  virtual std::string text(const HuntSummary& summary) const = 0;
  virtual std::string text(const ExploreReport& report) const = 0;
  virtual std::string text(const OrdersReport& report) const = 0;

  virtual std::string text(const AuditReport& report) const = 0;
};

enum class Detail : std::uint8_t { verdict, normal, all };

struct Style {
  bool colour = false;
  std::size_t width = any_width;  // of a line
  Detail detail = Detail::normal;
};

struct Format {
  std::string_view name;  // as --format takes it
  std::string_view what;
  std::unique_ptr<Renderer> (*make)(const Style& style);
};

// The first one is what is printed where none is asked for.
std::span<const Format> formats();

// Null where there is no such format.
std::unique_ptr<Renderer> renderer(std::string_view format, const Style& style);

}  // namespace gradledger::report
