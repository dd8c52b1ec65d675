#include "report/finding.h"

#include <fmt/format.h>

#include "sim/scenario/identity.h"

namespace gradledger::report {

std::string fingerprint(const std::string& scenario, std::string_view finding, const std::string& engine, const std::string& family) {
  return hash_digits(fmt::format("{}\n{}\n{}\n{}", scenario, finding, engine, family));
}

}  // namespace gradledger::report
