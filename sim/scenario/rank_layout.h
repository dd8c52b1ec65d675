// How the ranks of a world lie: sizes of its dimensions, and the order in which they follow each other. Every process group follows from it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/result.h"

namespace gradledger {

class RankLayout {
 public:
  using Sets = std::vector<std::vector<std::uint32_t>>;

  // order: names of dimensions with "-" between them, neighbours first, as Megatron's RankGenerator has it; empty: the usual one. Experts have a grid
  // of their own over the same ranks, in which "etp" stands where "tp" does. Errors point below /layout.
  static Result<RankLayout> of(const std::string& order, const std::map<std::string, std::uint32_t>& sizes, std::uint32_t world_size);
  static bool is_dimension(std::string_view name);

  // 1 for a dimension that it does not have.
  std::uint32_t size(std::string_view dimension) const;
  std::uint32_t place(std::string_view dimension, std::uint32_t rank) const;
  bool has(std::string_view dimension) const;

  // By name: of each dimension, and of those that ranks meet in together, as "dp_cp".
  std::map<std::string, Sets> groups() const;

  const std::string& order() const { return order_; }                            // as stated
  const std::map<std::string, std::uint32_t>& stated() const { return sizes_; }  // likewise
  bool operator==(const RankLayout&) const = default;

 private:
  struct Dimension {
    std::string name;
    std::uint32_t size = 1, stride = 1;
    bool operator==(const Dimension&) const = default;
  };
  using Grid = std::vector<Dimension>;

  static Result<Grid> experts(const std::vector<std::string>& names, const std::map<std::string, std::uint32_t>& sizes, std::uint32_t tensor, std::uint32_t stages,
                              std::uint32_t world_size);
  static void lay(Grid& grid);
  const Dimension* find(std::string_view name) const;
  Sets sets(const Grid& grid, const std::vector<std::string_view>& names) const;

  std::string order_;
  std::map<std::string, std::uint32_t> sizes_;
  std::uint32_t world_size_ = 1;
  Grid dense_, expert_;  // expert_: empty where there are none
};

}  // namespace gradledger
