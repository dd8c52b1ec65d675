#include "ref/due_weights.h"

#include "ref/ledger.h"

namespace gradledger::ref {

double AveragedWeights::of(std::uint32_t backward, std::uint32_t rank) {
  if (!timeline_.is_averaged_on(rank, on_rank_, layer_, parameter_)) return 0;
  const Rational& weight = timeline_.weight_of(backward, rank, layer_);
  if (weight == last_) return averaged_;
  last_ = weight;
  return averaged_ = parameter_ ? timeline_.averaged_weight_of(*parameter_, backward, rank, on_rank_, layer_) : timeline_.averaged_weight(backward, rank, on_rank_, layer_);
}

LedgerColumn EntryColumns::column(std::uint32_t backward, std::uint32_t rank) {
  return {backward, rank, timeline_.contribution(backward, rank), timeline_.backwards[backward].documented, timeline_.own_weight(backward, rank), averaged_.of(backward, rank),
          {},       {}};
}

DueWeights::DueWeights(const Workload& workload, const Timeline& timeline, const std::vector<bool>& skipped, const LedgerEntry& entry, std::uint32_t parameter)
    : workload_(workload),
      timeline_(timeline),
      entry_(entry),
      parameter_(parameter),
      layer_(entry.role == Role::applied_gradient ? Layer::meant : Layer::documented),
      last_event_(timeline.events_behind(entry.key.event, entry.key.at_end) - 1),
      own_(timeline.contract.contributor(entry.key.rank, parameter)),
      due_(entry.role != Role::applied_gradient || (!skipped[entry.step] && (!timeline.two_layers || timeline.events[entry.key.event].updates()))),
      averaged_(timeline, entry.key.rank, layer_, parameter) {}

double DueWeights::of(std::uint32_t backward, std::uint32_t rank) {
  if (backward != backward_) {
    backward_ = backward;
    as_ = as_of(backward);
    counts_ = as_ != As::nothing && timeline_.counts_wherever_it_runs(workload_, backward, parameter_);
  }
  if (as_ == As::nothing || (as_ == As::own && rank != own_) || timeline_.dropped(backward, rank, layer_) <= last_event_) return 0;
  if (counts_ ? timeline_.backwards[backward].micro_batch[rank] == no_contribution : !timeline_.counts(workload_, backward, rank, parameter_)) return 0;
  const double factor = timeline_.gradients_set.empty() ? 1.0 : timeline_.factor(backward, rank, parameter_, last_event_);
  return (as_ == As::averaged ? averaged_.of(backward, rank) : timeline_.own_weight(backward, rank)) * factor;
}

DueWeights::As DueWeights::as_of(std::uint32_t backward) const {
  const Backward& b = timeline_.backwards[backward];
  if (!due_ || timeline_.window_of(b, layer_) != entry_.step || b.event > last_event_) return As::nothing;
  if (entry_.role == Role::applied_gradient) return As::averaged;
  if (entry_.role == Role::local_accumulator) return entry_.after == never || b.event > entry_.after ? As::own : As::nothing;
  const std::uint32_t reduced = timeline_.reduction_before(last_event_ + 1, entry_.step);
  if (reduced != never && b.event <= reduced) return As::averaged;
  return entry_.role == Role::replicated_accumulator ? As::own : As::nothing;
}

}  // namespace gradledger::ref
