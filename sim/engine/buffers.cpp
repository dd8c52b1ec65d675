#include "sim/engine/buffers.h"

#include <algorithm>

namespace gradledger {
namespace {

bool fits(std::string_view pattern, std::string_view name, std::string_view parameter) {
  const std::size_t star = pattern.find('*');
  const std::string_view before = pattern.substr(0, star), after = pattern.substr(star + 1);
  return name.size() == before.size() + parameter.size() + after.size() && name.starts_with(before) && name.ends_with(after) &&
         name.substr(before.size(), parameter.size()) == parameter;
}

}  // namespace

std::string_view name_of(BufferPurpose purpose) {
  switch (purpose) {
    case BufferPurpose::weights: return "weights";
    case BufferPurpose::gradients: return "gradients";
    case BufferPurpose::buckets: return "buckets";
    case BufferPurpose::accumulators: return "accumulators";
    case BufferPurpose::master_weights: return "master weights";
    case BufferPurpose::master_gradients: return "master gradients";
    case BufferPurpose::optimizer_state: return "optimizer state";
    case BufferPurpose::scalars: return "scalars";
    case BufferPurpose::other: return "other";
  }
  return "";
}

BufferPurposes::BufferPurposes(const Scenario& scenario, std::span<const BufferFamily> families) : families_(families) {
  for (const Parameter& p : scenario.parameters) parameters_.insert(p.name);
}

BufferPurpose BufferPurposes::of(std::string_view name) const {
  const std::string_view family_name = name.substr(0, name.find('['));
  for (const BufferFamily& family : families_) {
    if (family.name != family_name) continue;
    return family.purpose == BufferPurpose::master_weights && name.ends_with(".grad") ? BufferPurpose::master_gradients : family.purpose;
  }
  for (const BufferFamily& family : families_) {
    const std::size_t star = family.name.find('*');
    if (star == std::string_view::npos) continue;
    const std::string_view before = family.name.substr(0, star), after = family.name.substr(star + 1);
    if (name.size() < before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after)) continue;
    if (parameters_.contains(name.substr(before.size(), name.size() - before.size() - after.size()))) return family.purpose;
  }
  return BufferPurpose::other;
}

bool names_one_of(std::span<const BufferFamily> families, const Scenario& scenario, std::string_view name) {
  return std::any_of(families.begin(), families.end(), [&](const BufferFamily& family) {
    if (family.name.find('*') == std::string_view::npos) return family.name == name;
    return std::any_of(scenario.parameters.begin(), scenario.parameters.end(), [&](const Parameter& p) { return fits(family.name, name, p.name); });
  });
}

}  // namespace gradledger
