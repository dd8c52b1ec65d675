#include "sim/frameworks/megatron/norms.h"

namespace gradledger::megatron {
namespace {

constexpr std::uint32_t lane_count = 8;
constexpr std::uint32_t products_together = 4;

std::vector<Slice> elements_of(const std::vector<Slice>& slices) {
  std::vector<Slice> out;
  for (const Slice& slice : slices)
    for (std::uint32_t i = 0; i < slice.numel; ++i) out.push_back(slice.part(i, 1));
  return out;
}

}  // namespace

void NormScratch::allocate(bool with_lanes, ProgramWriter& w) {
  const auto buffer = [&](const char* name, Dtype dtype, std::uint64_t numel) {
    const BufferId b = w.declare(name, dtype, numel);
    w.allocate(b);
    return w.whole(b);
  };
  one = buffer("grad_norm", Dtype::float32, 1);
  squared = buffer("grad_norm_squared", Dtype::float64, 1);
  if (with_lanes) lanes = buffer("grad_norm_lanes", Dtype::float32, lane_count);
}

void emit_norm(const NormScratch& scratch, const std::vector<Slice>& slices, Slice norm, ProgramWriter& w) {
  if (scratch.lanes.numel > 0) return emit_norm_of_cpu(scratch, slices, norm, w);
  w.fill(scratch.squared, 0.0);
  for (const Slice& slice : slices)
    if (slice.numel > 0) w.squared_norm(scratch.squared, slice);
  w.copy(norm, scratch.squared);
  w.square_root(norm);
}

// Eight elements at a time, each into its lane; then the lanes; then what is left, four products at a time, and the last ones each in one rounding
// with their sum.
void emit_norm_of_cpu(const NormScratch& scratch, const std::vector<Slice>& slices, Slice norm, ProgramWriter& w) {
  const std::vector<Slice> elements = elements_of(slices);
  const auto add = [&](Slice sum, Slice element) {
    w.fill(scratch.squared, 0.0);
    w.squared_norm(scratch.squared, element);
    w.copy(scratch.one, scratch.squared);
    w.accumulate(sum, scratch.one);
  };
  const auto add_in_one_rounding = [&](Slice sum, Slice element) {
    w.copy(scratch.squared, sum);
    w.squared_norm(scratch.squared, element);
    w.copy(sum, scratch.squared);
  };
  std::size_t at = 0;
  w.fill(scratch.lanes, 0.0);
  for (; at + lane_count <= elements.size(); at += lane_count)
    for (std::uint32_t lane = 0; lane < lane_count; ++lane) add(scratch.lanes.part(lane, 1), elements[at + lane]);
  const Slice sum = scratch.lanes.part(0, 1);
  for (std::uint32_t lane = 1; lane < lane_count; ++lane) w.accumulate(sum, scratch.lanes.part(lane, 1));
  for (; at + products_together <= elements.size(); at += products_together)
    for (std::uint32_t i = 0; i < products_together; ++i) add(sum, elements[at + i]);
  for (; at < elements.size(); ++at) add_in_one_rounding(sum, elements[at]);
  w.copy(norm, sum);
  w.square_root(norm);
}

}  // namespace gradledger::megatron
