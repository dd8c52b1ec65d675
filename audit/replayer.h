// Scenarios judged, each behaviour once: two states of a framework that do the same to a script have the same verdict.
//
// A judgement looks at few of a framework's switches. Where another state has the same values in those, it would look at the same ones again and come to
// the same: nothing is run. Where they differ, a run on numbers may still show that it made no difference.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "audit/effects.h"
#include "audit/variant.h"
#include "ref/oracle.h"
#include "sim/frameworks/code_state.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"
#include "verbs/session.h"

namespace gradledger::audit {

// What a replay came to.
struct Answer {
  std::string refused;  // what the framework, or a scenario, refuses; empty: it ran
  std::shared_ptr<const Scenario> scenario;
  std::shared_ptr<const ref::Verdict> verdict;  // its findings, what it leaves out and its coverage alone
  Effects effects;

  bool judged() const { return refused.empty() && verdict->judged(); }
  bool affected() const { return refused.empty() && !verdict->findings.empty(); }
  bool clean() const { return refused.empty() && verdict->clean(); }
  std::string text() const { return refused.empty() ? effects.verdict : "refused"; }
};

class Replayer {
 public:
  Replayer(const Setup& setup, const verbs::Options& options) : setup_(setup), options_(options) {}

  // Throws ProgramsTooLarge. quick: findings are told in brief, and on numbers streams are looked at again only where a first run met a race.
  Answer answer(const Variant& variant, bool quick = true);
  // Likewise; of the verdict there is as much as in an answer.
  const ref::Verdict& judge_quickly(const Scenario& scenario, const Timeline& timeline);

  std::uint32_t judged() const { return judged_; }
  std::uint32_t alike() const { return alike_; }

 private:
  // What is kept of a judgement. Its ledger, and the decisions of its run, are gigabytes at a thousand ranks; all that anybody asks of them are the effects.
  struct Judged {
    ref::Verdict verdict;  // as in an answer
    Effects effects;
  };
  // What a run on numbers showed.
  struct Shown {
    std::uint64_t trace = 0, values = 0;
    std::string events;  // races and errors
    bool operator==(const Shown&) const = default;
  };
  struct Known {
    Contract contract;
    bool quick = false;
    CodeState state;
    SwitchReads reads;
    std::optional<Shown> shown;
    std::shared_ptr<const Judged> judged;
  };

  std::shared_ptr<const Judged> judged_of(const Scenario& scenario, const Timeline& timeline, bool quick, const SwitchRecorder& recorder);
  std::shared_ptr<const Judged> judged_anew(const Scenario& scenario, const Timeline& timeline, Producer& producer, ref::Executor executor, bool check_streams, bool quick);

  const Setup& setup_;
  const verbs::Options& options_;
  std::map<std::string, std::list<Known>> known_;  // by all of the scenario but the state of the framework
  std::uint32_t judged_ = 0, alike_ = 0;
};

}  // namespace gradledger::audit
