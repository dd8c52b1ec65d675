#include "ref/naming/naming.h"

#include <set>

#include <fmt/format.h>

#include "ref/describe.h"

namespace gradledger::ref {

// An update where the loop means none: what it applies is missing from the one that is meant.
void Naming::name_early_updates() {
  if (!timeline_.two_layers || verdict_.facts.stopped()) return;
  std::set<std::uint32_t> named;
  for (const JudgedSnapshot& seen : evidence_.seen) {
    if (seen.role != Role::applied_gradient || timeline_.events[seen.key.event].updates() || !named.insert(seen.key.event).second) continue;
    std::vector<Miscounted> early;
    for (const std::uint32_t b : timeline_.backwards_of(timeline_.events[seen.key.event].documented, Layer::documented)) {
      const Backward& backward = timeline_.backwards[b];
      if (backward.event > seen.key.event) continue;
      for (std::uint32_t r = 0; r < workload_.world_size; ++r)
        if (backward.micro_batch[r] != no_contribution && timeline_.dropped(b, r, Layer::documented) > seen.key.event)
          early.push_back({timeline_.contribution(b, r), 0.0, timeline_.averaged_weight(b, r, r, Layer::documented)});
    }
    Finding& finding = add(FindingClass::wrong_skip, seen.key.event, seen.key.rank);
    finding.buffer = seen.key.buffer;
    finding.role = seen.role;
    finding.elements = seen.layout;
    finding.contributions = std::move(early);
    const std::string taken = contributions_text(finding.contributions, finding.step);
    finding.sentence = fmt::format("wrong-skip: {} updates, and the loop means no update there; {} go into it and are missing from the update that is meant for window {}.",
                                   timeline_.describe(seen.key.event), taken.empty() ? "no contributions" : taken, finding.step);
  }
}

bool Naming::cut_short(std::uint32_t step) const {
  return timeline_.two_layers && found_in(step, [&](const Finding& f) { return f.finding == FindingClass::wrong_skip && !timeline_.events[f.event].updates(); });
}

void Naming::name_surplus() {
  if (!timeline_.contract.stated.reports_surplus) return;
  for (const SurplusCollectives& s : verdict_.facts.surplus) {
    if (Finding* known = find(FindingClass::surplus_communication, timeline_.events[s.event].step, s.rank)) {
      known->quantity->observed += static_cast<double>(s.bytes);
      continue;
    }
    Finding& finding = add(FindingClass::surplus_communication, s.event, s.rank);
    finding.quantity = Quantity{"bytes", static_cast<double>(s.bytes), 0, 0};
    finding.sentence =
        fmt::format("surplus-communication: in step {}, rank {} reduces gradients at {}, where the documentation has no reduction: {} collective{} of {} bytes there.",
                    finding.step, s.rank, timeline_.describe(s.event), s.collectives, s.collectives == 1 ? "" : "s", s.bytes);
  }
}

}  // namespace gradledger::ref
