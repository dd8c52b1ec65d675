// Backwards of a sum of losses, in the reference.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ref/model.h"

namespace gradledger::ref {

// Of the sum of several losses autograd adds the gradients up itself, in the format that it makes them in and in an order of its own: each partial sum is
// at most the sum of magnitudes.
void Model::add_sum_errors(State& state, const events::Backward& event, std::uint32_t up_to_event) {
  const Rounding sums{std::max(accumulate_.u, deposit_.u), std::max(accumulate_.tiny, deposit_.tiny)};
  std::vector<double>& per_backward = state.error_per_backward.own();
  for (std::uint32_t p = 0; p < workload_.parameters.size(); ++p) {
    const std::size_t begin = offset_[p], n = workload_.parameters[p].numel;
    for (std::uint32_t r = 0; r < workload_.world_size; ++r) {
      std::vector<double> magnitude(n);
      std::uint32_t terms = 0;
      for (std::uint32_t b = event.ordinal; b < event.ordinal + event.summed; ++b) {
        if (timeline_.backwards[b].micro_batch[r] == no_contribution || timeline_.dropped(b, r, view_.layer) <= up_to_event || !timeline_.used(workload_, b, r, p)) continue;
        const double weight = weight_of(b, r, p);
        fresh_.resize(n);
        source_.gradient(b, r, p, 0, fresh_);
        for (std::size_t i = 0; i < n; ++i) magnitude[i] += std::abs(fresh_[i] * weight);
        ++terms;
      }
      if (terms < 2) continue;
      Field& local = state.local[r].own();
      Field* since = state.since.empty() ? nullptr : &state.since[r].own();
      const bool counts = timeline_.contract.contributor(r, p) == r;
      for (std::size_t i = 0; i < n; ++i) {
        const double error = (terms - 1) * sums.of(magnitude[i] * (1 + terms * sums.u));
        local.error[begin + i] = widened(local.error[begin + i] + error);
        if (since) since->error[begin + i] = widened(since->error[begin + i] + error);
        if (counts) per_backward[begin + i] = widened(per_backward[begin + i] + error / divisor_[p]);
      }
    }
    std::vector<double>& reduced = state.reduced.own().error;
    for (std::size_t i = begin; i < begin + n; ++i) reduced[i] = std::max(per_backward[i], error_at_boundary(state, i, p));
  }
}

}  // namespace gradledger::ref
