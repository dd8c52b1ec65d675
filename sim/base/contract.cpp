#include "sim/base/contract.h"

namespace gradledger {

void raise_contract_violation(const char* kind, const char* what, std::source_location where) {
  throw ContractViolation(std::string(kind) + " broken in " + where.function_name() + " (" + where.file_name() + ":" +
                          std::to_string(where.line()) + "): " + what);
}

}  // namespace gradledger
