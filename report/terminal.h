// Text for people: tables, sentences, and colour where a terminal has it. terminal.cpp shows replays, the files beside it the other verbs.
#pragma once

#include "report/format.h"

namespace gradledger::report {

class Terminal final : public Renderer {
 public:
  explicit Terminal(const Style& style) : style_(style) {}

  using Renderer::text;
  std::string head(const std::string& command) const override;
  std::string between() const override;
  std::string text(const Report& report) const override;
  std::string text(const AccountingReport& report) const override;
  std::string text(const AccountingSummary& summary) const override;
  std::string text(const ProducersReport& report) const override;
  std::string text(const GateRow& row) const override;
  std::string text(const GateReport& report) const override;
  std::string text(const MutantReport& report) const override;
  std::string text(const CoverageReport& report) const override;
  std::string text(const Listing& listing) const override;
  std::string text(const TraceRow& row) const override;
  std::string text(const ConformRow& row) const override;
  std::string text(const ConformSummary& summary) const override;
  std::string text(const NotJudgedRow& row) const override;
  std::string text(const JudgeSummary& summary) const override;
  std::string text(const FoundRow& row) const override;
  std::string text(const FuzzReport& report) const override;
  std::string text(const DifferenceRow& row) const override;
  std::string text(const DifferSummary& summary) const override;
  std::string text(const HuntHead& head) const override;
  std::string text(const HuntRow& row) const override;
  std::string text(const HuntSummary& summary) const override;
  std::string text(const ExploreReport& report) const override;
  std::string text(const OrdersReport& report) const override;
  std::string text(const AuditReport& report) const override;
  std::string text(const ShardRow& row) const override;
  std::string text(const MergedExploration& exploration) const override;
  std::string text(const MergeReport& merge) const override;

 private:
  // Rows that are wider than a line go on in the next one.
  std::string fit(const std::string& text) const { return wrapped(text, style_.width, 8); }

  Style style_;
};

std::unique_ptr<Renderer> make_terminal(const Style& style, const Origin& origin);

}  // namespace gradledger::report
