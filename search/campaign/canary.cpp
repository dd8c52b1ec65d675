#include "search/campaign/canary.h"

#include "search/campaign/differ.h"
#include "search/mutants/hunt.h"

namespace gradledger::search {

std::optional<std::uint32_t> cases_until_canary(std::uint64_t seed) {
  const auto canary = mutant_named(canary_name, "");
  expects(canary.ok(), "the canary is a mutant of the catalogue");
  const Hunt caught = hunt(**canary, seed, canary_cases_max);
  return caught.found ? std::optional(caught.cases) : std::nullopt;
}

std::optional<std::uint32_t> cases_until_differ_canary(std::uint64_t seed) {
  const auto canary = mutant_named(canary_name, "");
  expects(canary.ok(), "the canary is a mutant of the catalogue");
  const auto as_drawn = [](Scenario&) {};
  const std::vector<Side> sides{{.name = "without the fault", .apply = as_drawn}, {.name = "with it", .apply = as_drawn, .factory = with_fault(**canary)}};
  Profile profile;
  profile.as_documented = true;
  for (std::uint32_t number = 0; number < canary_cases_max; ++number)
    if (compare_sides(draw(profile, seed, number), sides, seed).parting) return number + 1;
  return std::nullopt;
}

}  // namespace gradledger::search
