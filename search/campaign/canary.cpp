#include "search/campaign/canary.h"

#include "search/mutants/hunt.h"

namespace gradledger::search {

std::optional<std::uint32_t> cases_until_canary(std::uint64_t seed) {
  const auto canary = mutant_named(canary_name, "");
  expects(canary.ok(), "the canary is a mutant of the catalogue");
  const Hunt caught = hunt(**canary, seed, canary_cases_max);
  return caught.found ? std::optional(caught.cases) : std::nullopt;
}

}  // namespace gradledger::search
