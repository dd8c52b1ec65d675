// Process groups by name: each name divides the world into groups, as "dp" into [[0, 1], [2, 3]].
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradledger {

class Groups {
 public:
  Groups() = default;
  explicit Groups(std::uint32_t world_size) : world_size_(world_size) {}

  // Precondition: the groups are disjoint, not empty, and hold every rank.
  void add(const std::string& name, std::vector<std::vector<std::uint32_t>> groups);

  // "world" is one of all ranks, "rank" one for each; neither is among those that were added.
  bool contains(std::string_view name) const;
  // The group that a rank is in, sorted. Precondition: contains(name).
  std::vector<std::uint32_t> of(std::string_view name, std::uint32_t rank) const;
  const std::map<std::string, std::vector<std::vector<std::uint32_t>>, std::less<>>& named() const { return named_; }
  std::uint32_t world_size() const { return world_size_; }
  std::string names() const;  // of all, for messages

  bool operator==(const Groups&) const = default;

 private:
  std::uint32_t world_size_ = 1;
  std::map<std::string, std::vector<std::vector<std::uint32_t>>, std::less<>> named_;
};

}  // namespace gradledger
