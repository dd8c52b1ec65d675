#include "search/mutants/mutant.h"

#include <string>

#include "search/mutants/catalogue.h"
#include "sim/scenario/spelling.h"

namespace gradledger::search {

std::span<const Mutant> mutants() {
  static const std::vector<Mutant> all = [] {
    std::vector<Mutant> out;
    for (const auto part : {accumulation_mutants, reduction_mutants, order_mutants, step_mutants, lifecycle_mutants})
      for (Mutant& mutant : part()) out.push_back(std::move(mutant));
    add_loop_engines(out);
    for (const auto part : {loop_mutants, hook_mutants, muon_mutants, layout_mutants})
      for (Mutant& mutant : part()) out.push_back(std::move(mutant));
    return out;
  }();
  return all;
}

Result<const Mutant*> mutant_named(std::string_view name, std::string_view where) {
  std::vector<std::string> names;
  for (const Mutant& mutant : mutants()) {
    if (mutant.name == name) return &mutant;
    names.emplace_back(mutant.name);
  }
  return InputError{std::string(where), "\"" + std::string(name) + "\" is no mutant; docs/mutants.md lists them" + suggestion(name, names)};
}

}  // namespace gradledger::search
