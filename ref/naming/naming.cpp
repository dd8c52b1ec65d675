#include "ref/naming/naming.h"

#include <tuple>

#include "ref/describe.h"
#include "ref/sorted_mismatches.h"

namespace gradledger::ref {

void Naming::run() {
  verdict_.facts = std::move(evidence_.facts);
  sort_by_key(evidence_.fingerprint);
  for (const Mismatch& mismatch : evidence_.fingerprint) {
    const auto [at, fresh] = first_mismatch_.try_emplace(mismatch.step, mismatch.key.event);
    if (!fresh) at->second = std::min(at->second, mismatch.key.event);
  }
  for (const Mismatch& mismatch : evidence_.values) first_in_values_.try_emplace(mismatch.key, &mismatch);
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
  if (!std::is_sorted(verdict_.unbalanced.begin(), verdict_.unbalanced.end())) std::sort(verdict_.unbalanced.begin(), verdict_.unbalanced.end());
  verdict_.unbalanced.erase(std::unique(verdict_.unbalanced.begin(), verdict_.unbalanced.end()), verdict_.unbalanced.end());
}

Finding& Naming::add(FindingClass finding, std::uint32_t event, std::uint32_t rank) {
  return add(finding, event, rank, timeline_.events.empty() ? 0 : timeline_.events[event].step);
}

Finding& Naming::add(FindingClass finding, std::uint32_t event, std::uint32_t rank, std::uint32_t step) {
  Finding out;
  out.finding = finding;
  out.event = out.first_event = event;
  out.step = step;
  out.rank = rank;
  place_.try_emplace({finding, step, rank}, verdict_.findings.size());
  of_step_[step].push_back(verdict_.findings.size());
  return verdict_.findings.emplace_back(std::move(out));
}

Finding* Naming::find(FindingClass finding, std::uint32_t step, std::uint32_t rank) {
  const auto known = place_.find({finding, step, rank});
  return known == place_.end() ? nullptr : &verdict_.findings[known->second];
}

void Naming::also_in(Finding& finding, const std::string& buffer) {
  if (finding.buffer != buffer && std::find(finding.also_in.begin(), finding.also_in.end(), buffer) == finding.also_in.end()) finding.also_in.push_back(buffer);
}

}  // namespace gradledger::ref
