// What a report takes from a verdict as it is: all but findings and events, whose places only a verb knows.
#pragma once

#include "report/report.h"

namespace gradledger::report {

inline void take_verdict(const ref::Verdict& verdict, Report& out) {
  out.ledger = verdict.applied;
  out.coverage = verdict.coverage;
  out.exact = verdict.dyadic;
  out.contributions = verdict.contributions;
  out.contributions_not_decoded = verdict.undecoded;
  out.not_taken_apart = verdict.not_taken_apart;
  out.not_listed = verdict.not_listed;
  out.inconclusive_rows = verdict.inconclusive_rows;
  out.runs_leave_out = verdict.left_out;
  out.symbolic = verdict.weights;
  out.fingerprint_passes = verdict.fingerprint_passes;
  out.decode_passes = verdict.decode_passes;
  out.value_passes = verdict.value_passes;
  out.statistics = {verdict.ledger, verdict.values, verdict.parameters};
  out.collectives = verdict.facts.collectives;
  out.run = verdict.facts.summary;
  out.one_pass = verdict.one_pass;
  out.unexplained = verdict.unexplained.size();
}

}  // namespace gradledger::report
