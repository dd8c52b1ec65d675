#include "sim/scenario/overflows.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace gradledger {
namespace {

class Planter {
 public:
  Planter(const Workload& workload, Timeline& timeline) : workload_(workload), timeline_(timeline) {}

  std::optional<InputError> plant(const std::vector<Overflow>& overflows) {
    for (const Overflow& overflow : overflows)
      for (std::uint32_t r = 0; r < workload_.world_size; ++r)
        if (overflow.item->ranks.empty() || std::binary_search(overflow.item->ranks.begin(), overflow.item->ranks.end(), r))
          if (auto error = plant_on(overflow, r)) return error;
    std::stable_sort(timeline_.planted.begin(), timeline_.planted.end(),
                     [](const Plant& a, const Plant& b) { return std::pair(a.backward, a.rank) < std::pair(b.backward, b.rank); });
    return std::nullopt;
  }

 private:
  std::optional<InputError> plant_on(const Overflow& overflow, std::uint32_t rank) {
    expects(overflow.item->micro_batch.has_value(), "an overflow has its micro-batch");
    const std::uint32_t number = *overflow.item->micro_batch;
    const std::uint32_t backward = backward_of(overflow.step, rank, number);
    if (backward == never)
      return InputError{overflow.where + "/overflow/micro_batch", "is " + std::to_string(number) + ", but rank " + std::to_string(rank) + " runs " +
                                                                      std::to_string(overflow.step < timeline_.steps ? timeline_.micro_batches[overflow.step][rank] : 0) +
                                                                      " micro-batches in the window where this stands; expected one of them, counted from 0"};
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const PlantedValue value = overflow.item->planted;
    const double planted = value == PlantedValue::infinity ? infinity : value == PlantedValue::minus_infinity ? -infinity : std::numeric_limits<double>::quiet_NaN();
    for (std::uint32_t p = 0; p < workload_.parameters.size(); ++p) {
      const bool named = overflow.item->uses.empty() || overflow.item->uses.front() == workload_.parameters[p].name;
      if (!named || workload_.parameters[p].numel == 0 || !timeline_.used(workload_, backward, rank, p)) continue;
      timeline_.planted.push_back({backward, rank, p, planted});
      return std::nullopt;
    }
    return InputError{overflow.where + "/overflow" + (overflow.item->uses.empty() ? "" : "/parameter"), "finds no gradient to plant in: micro-batch " + std::to_string(number) +
                                                                                                            " of rank " + std::to_string(rank) +
                                                                                                            " uses no such parameter; expected one with elements that it uses"};
  }

  // Backwards are in the order of their windows, and of their numbers on each rank.
  std::uint32_t backward_of(std::uint32_t step, std::uint32_t rank, std::uint32_t number) {
    if (indexed_step_ != step) {
      indexed_step_ = step;
      index_.assign(workload_.world_size, {});
      auto first = std::partition_point(timeline_.backwards.begin(), timeline_.backwards.end(), [&](const Backward& b) { return b.step < step; });
      for (; first != timeline_.backwards.end() && first->step == step; ++first)
        for (std::uint32_t r = 0; r < workload_.world_size; ++r)
          if (first->micro_batch[r] != no_contribution) index_[r].push_back(static_cast<std::uint32_t>(first - timeline_.backwards.begin()));
    }
    return number < index_[rank].size() ? index_[rank][number] : never;
  }

  const Workload& workload_;
  Timeline& timeline_;
  std::uint32_t indexed_step_ = never;
  std::vector<std::vector<std::uint32_t>> index_;  // [rank][micro-batch] of that window: its backward
};

}  // namespace

std::optional<InputError> plant_overflows(const Workload& workload, const std::vector<Overflow>& overflows, Timeline& timeline) {
  return Planter(workload, timeline).plant(overflows);
}

}  // namespace gradledger
