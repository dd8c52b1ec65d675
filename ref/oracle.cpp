#include "ref/oracle.h"

#include "ref/naming/naming.h"
#include "ref/passes.h"

namespace gradledger::ref {

Verdict judge(const Workload& workload, const Timeline& timeline, Producer& producer, const OracleOptions& options) {
  Verdict verdict;
  Passes passes(workload, timeline, producer, options);
  passes.run(verdict);
  Evidence& evidence = passes.evidence();
  for (StepMismatch& mismatch : named(std::move(evidence.loop_norms))) evidence.steps.push_back(std::move(mismatch));
  Naming(workload, timeline, evidence, passes.ledger(), options.listed_cells_max, verdict).run();
  return verdict;
}

}  // namespace gradledger::ref
