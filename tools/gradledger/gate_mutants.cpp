#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "search/mutants/hunt.h"
#include "search/campaign/parallel.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/verbs.h"
#include "report/version/version.h"

namespace gradledger::tool {
namespace {

// One fault in one engine.
struct Planted {
  const search::Mutant* mutant = nullptr;
  std::string_view variant;
  search::Hunt hunt;
};

std::string names_of(const std::vector<ref::FindingClass>& classes) {
  std::string out;
  for (const ref::FindingClass c : classes) out += (out.empty() ? "" : ", ") + std::string(name_of(c));
  return out;
}

Result<std::vector<Planted>> planted(const Options& options) {
  std::vector<Planted> out;
  const auto add = [&](const search::Mutant& mutant) {
    for (const std::string_view variant : mutant.variants) out.push_back({&mutant, variant, {}});
  };
  for (const std::string& name : options.only_mutants) {
    const auto mutant = search::mutant_named(name, "--mutant");
    if (!mutant) return mutant.error();
    add(**mutant);
  }
  for (const search::Mutant& mutant : search::mutants())
    if (options.only_mutants.empty()) add(mutant);
  return out;
}

void print(const std::vector<Planted>& all, const Options& options) {
  for (std::size_t i = 0; i < all.size();) {
    const search::Mutant& mutant = *all[i].mutant;
    std::uint32_t found = 0, engines = 0, cases = 0;
    std::set<ref::FindingClass> seen;
    std::string survived;
    for (; i < all.size() && all[i].mutant == &mutant; ++i, ++engines) {
      const Planted& p = all[i];
      if (options.json)
        fmt::print("{}\n", nlohmann::ordered_json({{"record", "mutant"}, {"mutant", mutant.name}, {"engine", p.variant}, {"found", p.hunt.found},
                                                  {"cases", p.hunt.cases}, {"reported", names_of(p.hunt.reported)}}).dump());
      found += p.hunt.found;
      cases = std::max(cases, p.hunt.cases);
      if (p.hunt.found) seen.insert(p.hunt.reported.begin(), p.hunt.reported.end());
      else survived += fmt::format("        survives in {} for {} cases; fitting would be {}\n", p.variant, p.hunt.cases, names_of(mutant.classes));
    }
    if (options.json) continue;
    fmt::print("{:6}  {:34} {:>2} of {} engines, within {:>3} case{}  {}\n{}", found == engines ? "found" : "ALIVE", mutant.name, found, engines, cases, cases == 1 ? " " : "s",
               names_of({seen.begin(), seen.end()}), survived);
  }
}

}  // namespace

int gate_mutants(const std::vector<std::string>& paths, const Options& options) {
  if (!paths.empty()) {
    complain({"--mutants", "goes without scenarios; expected no PATH"});
    return bad_input;
  }
  auto all = planted(options);
  if (!all) {
    complain(all.error());
    return bad_input;
  }
  std::vector<Planted> hunted = std::move(all).value();
  expects(!hunted.empty(), "a gate over mutants has some");
  search::in_parallel(hunted.size(), options.jobs, [&](std::size_t i) { hunted[i].hunt = search::hunt(*hunted[i].mutant, hunted[i].variant, options.seed, options.mutant_cases); });
  print(hunted, options);
  const auto found = std::count_if(hunted.begin(), hunted.end(), [](const Planted& p) { return p.hunt.found; });
  std::set<const search::Mutant*> kinds;
  for (const Planted& p : hunted) kinds.insert(p.mutant);
  const std::size_t alive = hunted.size() - static_cast<std::size_t>(found);
  if (options.json)
    fmt::print("{}\n", nlohmann::ordered_json({{"record", "summary"}, {"schema_version", 1}, {"tool", tool_json()}, {"mutants", kinds.size()},
                                              {"planted", hunted.size()}, {"found", found}, {"alive", alive}}).dump());
  else fmt::print("{} mutant{} planted in {} engines altogether: {} found, {} alive\n", kinds.size(), kinds.size() == 1 ? "" : "s", hunted.size(), found, alive);
  return alive == 0 ? clean : findings;
}

}  // namespace gradledger::tool
