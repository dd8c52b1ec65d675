// Scenarios judged, each behaviour once: two states of a framework that do the same to a script have the same verdict.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "audit/effects.h"
#include "audit/variant.h"
#include "ref/oracle.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"
#include "verbs/session.h"

namespace gradledger::audit {

// What a replay came to.
struct Answer {
  std::string refused;  // what the framework, or a scenario, refuses; empty: it ran
  std::shared_ptr<const Scenario> scenario;
  std::shared_ptr<const ref::Verdict> verdict;
  Effects effects;

  bool judged() const { return refused.empty() && verdict->judged(); }
  bool affected() const { return refused.empty() && !verdict->findings.empty(); }
  bool clean() const { return refused.empty() && verdict->clean(); }
  std::string text() const { return refused.empty() ? effects.verdict : "refused"; }
};

class Replayer {
 public:
  Replayer(const Setup& setup, const verbs::Options& options) : setup_(setup), options_(options) {}

  // Throws ProgramsTooLarge. quick: streams are looked at again only where a first run met a race.
  Answer answer(const Variant& variant, bool quick = true);
  const ref::Verdict& judge_quickly(const Scenario& scenario, const Timeline& timeline) { return *verdict_of(scenario, timeline, true); }

  std::uint32_t judged() const { return judged_; }
  std::uint32_t alike() const { return alike_; }

 private:
  struct Known {
    Contract contract;
    std::string script;  // all of the scenario but the state of the framework
    std::uint64_t trace = 0, values = 0;
    std::string seen;  // races and errors
    std::shared_ptr<const ref::Verdict> verdict;
  };
  std::shared_ptr<const ref::Verdict> verdict_of(const Scenario& scenario, const Timeline& timeline, bool quick);
  ref::Verdict judged_anew(const Scenario& scenario, const Timeline& timeline, Producer& producer, ref::Executor executor, bool check_streams);

  const Setup& setup_;
  const verbs::Options& options_;
  std::list<Known> known_;
  std::map<std::string, std::shared_ptr<const ref::Verdict>> by_behaviour_;  // the same behaviour in every switch
  std::uint32_t judged_ = 0, alike_ = 0;
};

}  // namespace gradledger::audit
