#include "verbs/explain.h"

#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/output.h"
#include "tools/gradledger/verbs.h"

namespace gradledger::tool {

int explain(const std::string& name, const std::string& corpus, const Options& options, const Output& out) {
  const auto explained = verbs::explain(name, corpus, options);
  if (!explained) {
    complain(explained.error());
    return explained.error().unavailable ? unavailable : bad_input;
  }
  out.print(*explained);
  return clean;
}

}  // namespace gradledger::tool
