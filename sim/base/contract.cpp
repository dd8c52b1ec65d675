#include "sim/base/contract.h"

namespace gradledger {

void raise_contract_violation(const char* kind, const char* what, CallSite where) {
  throw ContractViolation(std::string(kind) + " broken in " + where.function + " (" + where.file + ":" + std::to_string(where.line) + "): " + what);
}

}  // namespace gradledger
