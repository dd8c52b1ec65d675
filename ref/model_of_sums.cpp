// Backwards whose gradient autograd adds up of several: of a sum of losses, or of a parameter's uses in several runs of it.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ref/model.h"

namespace gradledger::ref {

// Of the sum of several losses autograd adds the gradients up itself, in the format that it makes them in and in an order of its own: each partial sum is
// at most the sum of magnitudes.
void Model::add_sum_errors(State& state, const events::Backward& event, std::uint32_t up_to_event) {
  const Rounding sums{std::max(accumulate_.u, deposit_.u), std::max(accumulate_.tiny, deposit_.tiny)};
  for (std::uint32_t p = 0; p < workload_.parameters.size(); ++p) {
    const std::size_t n = workload_.parameters[p].numel;
    for (std::uint32_t r = 0; r < workload_.world_size; ++r) {
      std::vector<double> magnitude(n);
      std::uint32_t terms = 0;
      for (std::uint32_t b = event.ordinal; b < event.ordinal + event.summed; ++b) {
        if (timeline_.backwards[b].micro_batch[r] == no_contribution || timeline_.dropped(b, r, view_.layer) <= up_to_event || !timeline_.used(workload_, b, r, p)) continue;
        const double weight = weight_of(b, r, p);
        gradient_.resize(n);
        source_.gradient(b, r, p, 0, gradient_);
        for (std::size_t i = 0; i < n; ++i) magnitude[i] += std::abs(gradient_[i] * weight);
        ++terms;
      }
      if (terms < 2) continue;
      for (double& each : magnitude) each = (terms - 1) * sums.of(each * (1 + terms * sums.u));
      widen_by(state, r, p, magnitude);
    }
    reduce_errors(state, p);
  }
}

// A phase of reentrant checkpoints is a run of autograd by itself: what it has of a tied parameter's gradient is added to what earlier ones left there.
void Model::add_phase_errors(State& state, const events::Backward& event, std::uint32_t up_to_event) {
  const Rounding sums{std::max(accumulate_.u, deposit_.u), std::max(accumulate_.tiny, deposit_.tiny)};
  for (std::uint32_t p = 0; p < workload_.parameters.size(); ++p) {
    const auto ties = std::count_if(workload_.parameters.begin(), workload_.parameters.end(), [&](const Parameter& use) { return use.tied_to == p; });
    const auto terms = static_cast<double>(std::min<std::int64_t>(ties + 1, event.phases));
    if (terms < 2) continue;
    for (std::uint32_t r = 0; r < workload_.world_size; ++r) {
      if (timeline_.dropped(event.ordinal, r, view_.layer) <= up_to_event || !timeline_.used(workload_, event.ordinal, r, p)) continue;
      const double weight = weight_of(event.ordinal, r, p);
      gradient_.resize(workload_.parameters[p].numel);
      source_.gradient(event.ordinal, r, p, 0, gradient_);
      std::vector<double> errors(gradient_.size());
      const Field& local = *state.local[r];
      for (std::size_t i = 0; i < errors.size(); ++i)
        errors[i] = (terms - 1) * sums.of((std::abs(gradient_[i] * weight) + std::abs(local.value[offset_[p] + i]) + local.error[offset_[p] + i]) * (1 + terms * sums.u));
      widen_by(state, r, p, errors);
    }
    reduce_errors(state, p);
  }
}

void Model::widen_by(State& state, std::uint32_t rank, std::uint32_t parameter, const std::vector<double>& errors) {
  std::vector<double>& per_backward = state.error_per_backward.own();
  Field& local = state.local[rank].own();
  Field* since = state.since.empty() ? nullptr : &state.since[rank].own();
  const bool counts = timeline_.contract.contributor(rank, parameter) == rank;
  for (std::size_t k = 0; k < errors.size(); ++k) {
    const std::size_t i = offset_[parameter] + k;
    local.error[i] = widened(local.error[i] + errors[k]);
    if (since) since->error[i] = widened(since->error[i] + errors[k]);
    if (counts) per_backward[i] = widened(per_backward[i] + errors[k] / divisor_[parameter]);
  }
}

}  // namespace gradledger::ref
