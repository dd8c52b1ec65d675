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

// A NotRun that knows whose it is: the wrapper has nothing for what the script asks for, or it threw when it was made.
class Refusal final : public api::NotRun {
 public:
  Refusal(bool when_made, const std::string& text) : NotRun(text), when_made_(when_made) {}
  bool when_made() const { return when_made_; }

 private:
  bool when_made_ = false;
};

// full_ledger: the weights of what is right too. Throws BadInput, Refusal and BrokenRun.
ref::Verdict judge(const Scenario& scenario, const Timeline& timeline, driver::DriverRanks& ranks, const api::Options& options, bool full_ledger = false);

api::Report report_of(const api::detail::ScenarioParts& parts, const std::string& wrapper, const api::Options& options, const ref::Verdict& verdict);

}  // namespace gradledger::library
