// JSON for programs: records, each an object in a line with the same head, and a summary last. docs/schemas has what is in them. json.cpp shows replays,
// the files beside it the other verbs.
#pragma once

#include <nlohmann/json.hpp>

#include "report/format.h"

namespace gradledger::report {

class Json final : public Renderer {
 public:
  explicit Json(Origin origin) : origin_(std::move(origin)) {}

  using Renderer::text;
  std::string text(const Report& report) const override;
  std::string text(const AccountingReport& report) const override;
  std::string text(const ProducersReport& report) const override;
  std::string text(const GateRow& row) const override;
  std::string text(const MutantReport& report) const override;
  std::string text(const CoverageReport& report) const override;
  std::string text(const Listing& listing) const override;
  std::string text(const TraceRow& row) const override;
  std::string text(const ConformRow& row) const override;
  std::string text(const NotJudgedRow& row) const override;
  std::string text(const FoundRow& row) const override;
  std::string text(const FuzzReport& report) const override;
  std::string text(const DifferenceRow& row) const override;
  std::string text(const DifferSummary& summary) const override;
  std::string text(const HuntRow& row) const override;
  std::string text(const ExploreReport& report) const override;
  std::string text(const OrdersReport& report) const override;
  std::string text(const AuditReport& report) const override;
  std::string text(const ShardRow& row) const override;
  std::string text(const JudgedRow& row) const override;
  std::string text(const MergedGateRow& row) const override;
  std::string text(const MergedExploration& exploration) const override;
  std::string text(const MergeReport& merge) const override;
  std::string text(const ErrorRow& row) const override;
  std::string text(const Summary& summary) const override;

 private:
  // What every record begins with. command: its own, where it has one.
  nlohmann::ordered_json record(const char* name, const std::string& command = "") const;

  Origin origin_;
};

std::unique_ptr<Renderer> make_json(const Style& style, const Origin& origin);

}  // namespace gradledger::report
