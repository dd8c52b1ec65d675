#include "verbs/mutants.h"

#include "search/campaign/parallel.h"
#include "search/mutants/hunt.h"

namespace gradledger::verbs {
namespace {

// One fault in one engine.
struct Planted {
  const search::Mutant* mutant = nullptr;
  std::string_view variant;
  search::Hunt hunt;
};

Result<std::vector<Planted>> planted(const MutantOptions& options) {
  std::vector<Planted> out;
  const auto add = [&](const search::Mutant& mutant) {
    for (const std::string_view variant : mutant.variants) out.push_back({&mutant, variant, {}});
  };
  for (const std::string& name : options.only) {
    const auto mutant = search::mutant_named(name, "--mutant");
    if (!mutant) return mutant.error();
    add(**mutant);
  }
  for (const search::Mutant& mutant : search::mutants())
    if (options.only.empty()) add(mutant);
  return out;
}

}  // namespace

Result<report::MutantReport> gate_mutants(const MutantOptions& options) {
  auto all = planted(options);
  if (!all) return all.error();
  std::vector<Planted> hunted = std::move(all).value();
  expects(!hunted.empty(), "a gate over mutants has some");
  const auto hunt = [&](std::size_t i) { hunted[i].hunt = search::hunt(*hunted[i].mutant, hunted[i].variant, options.seed, options.cases); };
  const auto take = [&](std::size_t i) {
    options.progress(i + 1, hunted.size());
    return true;
  };
  hunted.resize(search::in_order(hunted.size(), options.jobs, hunt, take, options.stop));
  report::MutantReport out;
  for (const Planted& p : hunted) out.rows.push_back({std::string(p.mutant->name), std::string(p.variant), p.mutant->classes, p.hunt.reported, p.hunt.found, p.hunt.cases});
  return out;
}

}  // namespace gradledger::verbs
