#include "sim/scenario/groups.h"

#include <algorithm>
#include <numeric>

#include "sim/base/contract.h"

namespace gradledger {

void Groups::add(const std::string& name, std::vector<std::vector<std::uint32_t>> groups) {
  for (std::vector<std::uint32_t>& group : groups) std::sort(group.begin(), group.end());
  named_[name] = std::move(groups);
}

bool Groups::contains(std::string_view name) const { return name == "world" || name == "rank" || named_.find(name) != named_.end(); }

std::vector<std::uint32_t> Groups::of(std::string_view name, std::uint32_t rank) const {
  if (name == "rank") return {rank};
  if (name == "world") {
    std::vector<std::uint32_t> all(world_size_);
    std::iota(all.begin(), all.end(), 0u);
    return all;
  }
  const auto groups = named_.find(name);
  expects(groups != named_.end(), "a group is asked for that nobody named");
  for (const std::vector<std::uint32_t>& group : groups->second)
    if (std::binary_search(group.begin(), group.end(), rank)) return group;
  expects(false, "a group is asked for of a rank that is in none of them");
  return {};
}

std::string Groups::names() const {
  std::string out = "world, rank";
  for (const auto& [name, groups] : named_) out += ", " + name;
  return out;
}

}  // namespace gradledger
