#include "ref/naming/naming.h"

#include <tuple>

#include "ref/describe.h"

namespace gradledger::ref {

void Naming::run() {
  verdict_.facts = std::move(evidence_.facts);
  std::stable_sort(evidence_.fingerprint.begin(), evidence_.fingerprint.end(), [](const Mismatch& a, const Mismatch& b) { return a.key < b.key; });
  name_structural();
  name_steps(false);
  name_early_updates();
  for (const auto& [key, entry] : ledger_.entries())
    if (!entry.columns.empty()) name_entry(entry);
  name_coverage();
  name_values();
  name_steps(true);
  name_clipping();
  name_divergences();
  name_surplus();
  for (Finding& finding : verdict_.findings)
    if (finding.sentence.empty()) finding.sentence = sentence_of(finding, workload_, timeline_);
  std::stable_sort(verdict_.findings.begin(), verdict_.findings.end(),
                   [](const Finding& a, const Finding& b) { return std::tie(a.step, a.first_event, a.finding, a.rank) < std::tie(b.step, b.first_event, b.finding, b.rank); });
  list_applied();
  weigh_coverage();
  for (const auto* mismatches : {&evidence_.fingerprint, &evidence_.values, &evidence_.parameters})
    for (const Mismatch& mismatch : *mismatches) verdict_.unbalanced.push_back(mismatch.key);
  std::sort(verdict_.unbalanced.begin(), verdict_.unbalanced.end());
  verdict_.unbalanced.erase(std::unique(verdict_.unbalanced.begin(), verdict_.unbalanced.end()), verdict_.unbalanced.end());
}

Finding& Naming::add(FindingClass finding, std::uint32_t event, std::uint32_t rank) {
  Finding out;
  out.finding = finding;
  out.event = out.first_event = event;
  out.step = timeline_.events.empty() ? 0 : timeline_.events[event].step;
  out.rank = rank;
  return verdict_.findings.emplace_back(std::move(out));
}

Finding* Naming::find(FindingClass finding, std::uint32_t step, std::uint32_t rank) {
  for (Finding& known : verdict_.findings)
    if (known.finding == finding && known.step == step && known.rank == rank) return &known;
  return nullptr;
}

void Naming::also_in(Finding& finding, const std::string& buffer) {
  if (finding.buffer != buffer && std::find(finding.also_in.begin(), finding.also_in.end(), buffer) == finding.also_in.end()) finding.also_in.push_back(buffer);
}

}  // namespace gradledger::ref
