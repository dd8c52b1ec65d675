// ZeRO stage 3: weights that are gathered for the modules of a forward and of its backward.
#include "sim/frameworks/deepspeed/engine/zero_stage3.h"

namespace gradledger {

void ZeroStage3::run_modules(ProgramWriter& w, std::optional<std::uint32_t> backward, std::span<const std::uint32_t> ready, bool again) {
  if (!fetches_) return begin_gathers(ready);
  if (!again) {
    compare_recordings(w);
    fetches_->begin_forward();
    gather(w, fetches_->forward_of_root());
  }
  if (backward && fetches_->compares() && !runs_as_first_rank(*backward)) fetches_->differs();
  for (std::size_t i = ready.size(); i-- > 0;) gather(w, fetches_->forward(ready[i]));
}

// Of the modules that run, where the gathers themselves are alike on all ranks and left out.
void ZeroStage3::begin_gathers(std::span<const std::uint32_t> parameters) const {
  for (const std::uint32_t p : parameters)
    if (numel(p) == 0) throw FrameworkError{"AssertionError", "the gather of " + parameter_name(p) + ", which has no elements, was never begun"};
}

// Where it is recorded, each rank checks that it ran the modules that the first rank did.
void ZeroStage3::compare_recordings(ProgramWriter& w) {
  if (!fetches_->compares()) return;
  w.collective({.kind = CollectiveKind::broadcast, .purpose = Purpose::control, .communicator = gathers_in(), .input = recorded_length_, .output = recorded_length_});
  if (fetches_->disagrees()) throw FrameworkError{"RuntimeError", "Detected a disagreement on list contents between rank0 and rank" + std::to_string(rank())};
}

// Parts of a parameter are of the same module on each of the ranks that have one.
std::vector<std::uint32_t> ZeroStage3::modules_of(std::uint32_t backward, std::uint32_t on_rank) const {
  std::vector<std::uint32_t> out = timeline().ready_order(scenario(), backward, on_rank);
  for (std::uint32_t& p : out) p -= scenario().parameters[p].part ? scenario().parameters[p].part->number : 0;
  return out;
}

bool ZeroStage3::runs_as_first_rank(std::uint32_t backward) const {
  const auto runs = [this](std::uint32_t b, std::uint32_t on_rank) { return timeline().backwards[b].micro_batch[on_rank] != no_contribution; };
  std::uint32_t behind = 0;
  for (std::uint32_t b = 0; b < backward; ++b) behind += runs(b, rank()) ? 1 : 0;
  for (std::uint32_t b = 0; b < timeline().backwards.size(); ++b)
    if (runs(b, 0) && behind-- == 0) return modules_of(backward, rank()) == modules_of(b, 0);
  return true;
}

void ZeroStage3::begin_backward(ProgramWriter& w, std::uint32_t backward) {
  if (!fetches_) return;
  if (fetches_->compares() && !runs_as_first_rank(backward)) fetches_->differs();
  gather(w, fetches_->backward_of_root());
}

void ZeroStage3::before_module(ProgramWriter& w, std::uint32_t use) {
  if (fetches_) gather(w, fetches_->before_backward(use));
}

void ZeroStage3::after_module(std::uint32_t use) {
  if (fetches_) fetches_->after_backward(use);
}

void ZeroStage3::gather(ProgramWriter& w, const std::vector<std::uint32_t>& parameters) {
  for (const std::uint32_t p : parameters) {
    begin_gathers({&p, 1});
    Tensor fetched;
    if (offload_parameters_) {
      fetched = tensors_.allocate(w, "ds_tensor on device", model_dtype_, weights_[p].numel);
      w.copy_over_the_bus(fetched.slice, weights_[p], false);
    }
    const Tensor whole = tensors_.allocate(w, "gathered weights", model_dtype_, shard(p).size * world());
    w.collective({.kind = CollectiveKind::all_gather,
                  .purpose = Purpose::parameter,
                  .group = peers().id,
                  .communicator = gathers_in(),
                  .input = fetched.defined() ? fetched.slice : weights_[p],
                  .output = whole.slice});
    tensors_.drop(w, fetched);
    tensors_.drop(w, whole);
  }
}

}  // namespace gradledger
