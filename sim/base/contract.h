// Programmer errors: preconditions, postconditions and invariants, on in every build and catchable in tests.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>

namespace gradledger {

// A broken contract inside gradledger: never the user's fault. The command line reports it with exit code 3.
class ContractViolation : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void raise_contract_violation(const char* kind, const char* what, std::source_location where);

inline void expects(bool condition, const char* what,
                    std::source_location where = std::source_location::current()) {
  if (!condition) [[unlikely]] raise_contract_violation("precondition", what, where);
}

inline void ensures(bool condition, const char* what,
                    std::source_location where = std::source_location::current()) {
  if (!condition) [[unlikely]] raise_contract_violation("postcondition", what, where);
}

}  // namespace gradledger
