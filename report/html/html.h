// One page that a browser opens without a network: what a run had to say as JSON, and the style and scripts that draw it.
#pragma once

#include <span>
#include <string>

#include "report/format.h"

namespace gradledger::report {

// Each text is a part of a page: one JSON object, or nothing.
class Html final : public Renderer {
 public:
  using Renderer::text;
  std::string text(const Report& report) const override;
  std::string text(const AccountingReport& report) const override;
  std::string text(const AccountingSummary& summary) const override;
  std::string text(const ProducersReport& report) const override;

  std::string text(const GateReport& report) const override;
  std::string text(const MutantReport& report) const override;
  std::string text(const CoverageReport& report) const override;
  std::string text(const Listing& listing) const override;

  std::string text(const FuzzReport& report) const override;
  std::string text(const DifferenceRow& row) const override;
  std::string text(const DifferSummary& summary) const override;
  std::string text(const HuntRow& row) const override;
  std::string text(const HuntSummary& summary) const override;
  std::string text(const ExploreReport& report) const override;
  std::string text(const OrdersReport& report) const override;

  std::string text(const AuditReport& report) const override;
};

// The whole file. Whatever the parts hold, it is data to the browser: no markup, no script. title: of the tab.
std::string html_page(const std::string& title, std::span<const std::string> parts);

}  // namespace gradledger::report
