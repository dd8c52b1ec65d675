#include "sim/trace/observation.h"

#include "sim/trace/producer.h"

namespace gradledger {

std::string_view name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce: return "all_reduce";
    case CollectiveKind::reduce: return "reduce";
    case CollectiveKind::reduce_scatter: return "reduce_scatter";
    case CollectiveKind::all_gather: return "all_gather";
    case CollectiveKind::broadcast: return "broadcast";
  }
  return "";
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "sum";
    case ReduceOp::avg: return "avg";
    case ReduceOp::max: return "max";
    case ReduceOp::premultiplied_sum: return "premultiplied sum";
    case ReduceOp::other: return "other";
  }
  return "";
}

std::string_view name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::gradient: return "gradient";
    case Purpose::norm: return "norm";
    case Purpose::overflow: return "overflow";
    case Purpose::parameter: return "parameter";
    case Purpose::user: return "user";
    case Purpose::control: return "control";
  }
  return "";
}

std::string_view name_of(MemorySpace space) { return space == MemorySpace::device ? "device" : "host"; }

std::string CollectiveRecord::text() const {
  if (!in_words.empty()) return in_words;
  std::string out(name_of(kind));
  const bool reduces = kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce || kind == CollectiveKind::reduce_scatter;
  if (reduces) out += " " + std::string(name_of(op));
  out += " of " + std::to_string(numel) + " " + std::string(name_of(dtype));
  if (kind == CollectiveKind::reduce || kind == CollectiveKind::broadcast) out += " with root " + std::to_string(root);
  if (group != 0) out += " in group " + std::to_string(group);
  return out + " (" + std::string(name_of(purpose)) + ")";
}

void GradientSource::initial_parameter(std::uint32_t, std::uint64_t, std::span<double> out) const {
  for (double& x : out) x = 0.0;
}

void GradientSource::gradient_error(std::uint32_t, std::uint32_t, std::uint32_t, std::uint64_t, std::span<double> out) const {
  for (double& x : out) x = 0.0;
}

std::string_view name_of(StepFact fact) {
  switch (fact) {
    case StepFact::skipped: return "skipped";
    case StepFact::updated: return "updated";
    case StepFact::loss_scale: return "loss_scale";
    case StepFact::gradient_norm: return "global_grad_norm";
    case StepFact::clipping_norm: return "clipping_norm";
    case StepFact::loop_norm: return "loop_norm";
  }
  return "";
}

}  // namespace gradledger
