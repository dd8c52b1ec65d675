// Programmer errors: preconditions, postconditions and invariants, on in every build and catchable in tests.
#pragma once

#include <stdexcept>
#include <string>

namespace gradledger {

// A broken contract inside gradledger: never the user's fault. The command line reports it with exit code 3.
class ContractViolation : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Where a function was called; std::source_location, which clang 14 does not have.
struct CallSite {
  const char* file;
  const char* function;
  int line;

  static constexpr CallSite here(const char* file = __builtin_FILE(), const char* function = __builtin_FUNCTION(), int line = __builtin_LINE()) { return {file, function, line}; }
};

[[noreturn]] void raise_contract_violation(const char* kind, const char* what, CallSite where);

inline void expects(bool condition, const char* what, CallSite where = CallSite::here()) {
  if (!condition) [[unlikely]]
    raise_contract_violation("precondition", what, where);
}

inline void ensures(bool condition, const char* what, CallSite where = CallSite::here()) {
  if (!condition) [[unlikely]]
    raise_contract_violation("postcondition", what, where);
}

}  // namespace gradledger
