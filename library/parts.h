// What stands behind the public values, for the sources of this folder.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gradledger/orderings.h"
#include "ref/oracle.h"
#include "sim/producers/driver/ranks.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"

namespace gradledger::api::detail {

struct ScenarioParts {
  gradledger::Scenario scenario;
  gradledger::Timeline timeline;
  bool zero_grad_is_stated = false;
  std::string file;  // empty: a text
};

struct Access {
  static const ScenarioParts& parts(const Scenario& scenario) { return *scenario.parts_; }
  static Scenario scenario(ScenarioParts parts) { return Scenario(std::make_shared<const ScenarioParts>(std::move(parts))); }
};

}  // namespace gradledger::api::detail

namespace gradledger::library {

using api::detail::Access;

// full_ledger: the weights of what is right too. Throws BadInput, NotRun and BrokenRun.
ref::Verdict judge(const Scenario& scenario, const Timeline& timeline, driver::DriverRanks& ranks, const api::Options& options, bool full_ledger = false);

api::Report report_of(const api::detail::ScenarioParts& parts, const std::string& wrapper, const api::Options& options, const ref::Verdict& verdict);

}  // namespace gradledger::library
