#include "ref/hidden_norms.h"

#include <fmt/format.h>

#include "ref/describe.h"

namespace gradledger::ref {

void HiddenNorms::compared(std::uint32_t event, std::uint32_t rank, StepFact fact, double due, double bound) { note({fact, event, rank}, due > 0 && !(bound < due)); }

void HiddenNorms::add(const HiddenNorms& more) {
  for (const auto& [key, hides] : more.hidden_) note(key, hides);
}

void HiddenNorms::note(const Key& key, bool hides) { hidden_.try_emplace(key, true).first->second &= hides; }

std::vector<std::string> HiddenNorms::sentences() const {
  std::map<StepFact, std::vector<std::uint32_t>> events;
  for (const auto& [key, hides] : hidden_) {
    const auto& [fact, event, rank] = key;
    if (!hides) continue;
    std::vector<std::uint32_t>& of_fact = events[fact];
    if (of_fact.empty() || of_fact.back() != event) of_fact.push_back(event);
  }
  std::vector<std::string> out;
  for (const auto& [fact, of_fact] : events)
    out.push_back(fmt::format("{} at {}: rounding may be as large as the norm, and a norm of 0 would pass", name_of(fact), numbered("event", of_fact)));
  return out;
}

}  // namespace gradledger::ref
