#include "sim/frameworks/deepspeed/engine/keeping/host_accumulators.h"

namespace gradledger {

namespace {

// DeepSpeed#7981: before it, the host accumulator was used only with gradient_accumulation_steps > 1.
bool uses_host_accumulator(const KeepingContext& c) {
  return c.behaviour.offload_keep == OffloadKeep::gate_id_or_not_boundary ? c.micro_step_id > 0 || !c.boundary : c.config.gradient_accumulation_steps > 1;
}

}  // namespace

void HostAccumulators::keep(ProgramWriter& w, const KeepingContext& c, std::uint32_t p) {
  if (uses_host_accumulator(c) || c.boundary) c.require_gradient(p);
  if (uses_host_accumulator(c)) accumulate_on_host(w, c, p);
  if (!c.boundary) return;
  const OwnedPart part = c.owned(p);
  const Slice gradient = c.gradient_attribute(p).slice;
  to_master_gradient(w, c, p, gradient, gradient.part(part.parameter_offset, part.numel));
  c.tensors.clear(w, c.gradient_attribute(p));
}

// Nothing is added up, and its norm is none; then an overflow is looked for.
void HostAccumulators::keep_empty(const KeepingContext& c, std::uint32_t p) const {
  if (uses_host_accumulator(c) || c.boundary) c.require_gradient(p);
  if (c.boundary) c.require_elements(p);
}

void HostAccumulators::accumulate_on_host(ProgramWriter& w, const KeepingContext& c, std::uint32_t p) {
  Tensor& host = accumulated_on_host_[p];
  if (!host.defined()) {
    OnStream by_the_host(w, Stream::host);
    host = c.tensors.allocate(w, "accumulated_grads_in_cpu[" + c.parameter_name(p) + "]", c.model_dtype(), c.numel(p), MemorySpace::host);
    w.fill(host.slice, 0.0);
  }
  const Slice gradient = c.gradient_attribute(p).slice;
  const bool add = c.micro_step_id > 0;
  if (add) {
    Tensor on_device = c.tensors.allocate(w, "temp_grad_buffer_for_gpu_offload", c.model_dtype(), c.numel(p));
    w.copy_over_the_bus(on_device.slice, host.slice, c.pinned);
    w.accumulate(gradient, on_device.slice);
    c.tensors.drop(w, on_device);
  }
  const OffloadKeep rule = c.behaviour.offload_keep;
  // DeepSpeed#6550: add, else store: whatever a later backward adds is never stored again.
  const bool store = rule == OffloadKeep::counter_only ? !c.boundary : rule == OffloadKeep::add_else_store ? !add : true;
  if (store) w.copy_over_the_bus(host.slice, gradient, c.pinned);
  // What a boundary does not store went to the master gradient, and the host keeps a part that nobody reads.
  holds_window_[p] = store || (holds_window_[p] && !c.boundary);
}

void HostAccumulators::finalise_parameter(ProgramWriter& w, const KeepingContext& c, std::uint32_t p) {
  const OwnedPart part = c.owned(p);
  Tensor on_device = c.tensors.allocate(w, "temp_grad_buffer_for_gpu_offload", c.model_dtype(), c.numel(p));
  w.copy_over_the_bus(on_device.slice, accumulated_on_host_[p].slice, c.pinned);
  to_master_gradient(w, c, p, on_device.slice, on_device.slice.part(part.parameter_offset, part.numel));
  c.tensors.drop(w, on_device);
}

// The accumulators stay as the master gradient does.
void HostAccumulators::drop(ProgramWriter& w, const KeepingContext& c, bool skipped) {
  KeptOnHost::drop(w, c, skipped);
  if (c.behaviour.stale_clear != StaleClear::zero) return;
  OnStream by_the_host(w, Stream::host);
  for (const Tensor& host : accumulated_on_host_)
    if (host.defined()) w.fill(host.slice, 0.0);
}

void HostAccumulators::observe(ProgramWriter& w, const KeepingContext& c, double scale) const {
  for (std::uint32_t p : c.learned)
    if (accumulated_on_host_[p].defined())
      w.observe(w.view("accumulated_grads_in_cpu[" + c.parameter_name(p) + "]", c.owned_piece(p, accumulated_on_host_[p].slice)), Role::reduced_accumulator, scale, true);
  KeptOnHost::observe(w, c, scale);
}

void HostAccumulators::fold(StateFold& f) const {
  f.tensors(accumulated_on_host_);
  KeptOnHost::fold(f);
}

}  // namespace gradledger
