#include "ref/normalisation.h"

#include <cstdint>

namespace gradledger::ref {

std::vector<Normalisation> known_normalisations(const Workload& workload, const Timeline& timeline, const LedgerEntry& entry) {
  const auto tokens_of = [&](const Contribution& c) { return static_cast<double>(workload.tokens.of(c.step, c.rank, c.micro_batch).value_or(0)); };
  std::vector<double> of_rank(workload.world_size);
  for (const std::uint32_t number : timeline.backwards_of(entry.step, Layer::meant)) {
    const Backward& b = timeline.backwards[number];
    for (std::uint32_t r = 0; r < workload.world_size; ++r)
      if (b.micro_batch[r] != no_contribution) of_rank[r] += tokens_of({b.step, r, b.micro_batch[r]});
  }
  std::vector<Normalisation> out;
  const auto add = [&](const std::string& name, auto&& weight) {
    Normalisation& n = out.emplace_back(Normalisation{name, {}});
    for (const LedgerColumn& column : entry.columns) n.weights.push_back(column.contribution.step == entry.step ? weight(column.contribution) : 0.0);
  };
  if (workload.tokens.stated()) {
    add("every rank divides by its own tokens, and every rank counts alike", [&](const Contribution& c) { return of_rank[c.rank] > 0 ? tokens_of(c) / of_rank[c.rank] : 0; });
    add("every token counts alike", tokens_of);
    for (const auto& [name, sets] : timeline.contract.groups.named()) {
      const std::string of_sets = "every set of ranks of " + name + " divides by its own tokens, and the sets count alike";
      add(of_sets, [&, &name = name](const Contribution& c) {
        double sum = 0;
        for (const std::uint32_t r : timeline.contract.groups.of(name, c.rank)) sum += of_rank[r];
        return sum > 0 ? tokens_of(c) / sum : 0;
      });
    }
  }
  add("every micro-batch counts alike, whatever its tokens", [](const Contribution&) { return 1.0; });
  add("every rank divides by its own micro-batches, and every rank counts alike",
      [&](const Contribution& c) { return 1.0 / static_cast<double>(timeline.micro_batches[c.step][c.rank]); });
  return out;
}

}  // namespace gradledger::ref
