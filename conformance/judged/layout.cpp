#include "conformance/judged/layout.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>

#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger::conform {
namespace {

// The number between two texts that a name begins and ends with: 2 of "param2.grad".
std::optional<std::uint32_t> number_in(const std::string& name, const std::string& before, const std::string& after) {
  if (!name.starts_with(before) || !name.ends_with(after) || name.size() <= before.size() + after.size()) return std::nullopt;
  const char* begin = name.data() + before.size();
  const char* end = name.data() + name.size() - after.size();
  std::uint32_t number = 0;
  const auto [at, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || at != end) return std::nullopt;
  return number;
}

std::size_t elements_of(const std::vector<Stretch>& stretches) {
  return std::accumulate(stretches.begin(), stretches.end(), std::size_t{0}, [](std::size_t sum, const Stretch& s) { return sum + s.numel; });
}

}  // namespace

RecordedLayout::RecordedLayout(const Scenario& scenario, const Timeline& timeline, Division division) : scenario_(scenario), timeline_(timeline), division_(division) {
  const auto count = static_cast<std::uint32_t>(scenario.parameters.size());
  const std::uint32_t world = scenario.world_size;
  // Round robin deals the parameters to the ranks in turn.
  if (deepspeed_config(scenario).zero.round_robin_gradients)
    for (std::uint32_t rank = 0; rank < world; ++rank)
      for (std::uint32_t p = rank; p < count; p += world) order_.push_back(p);
  else
    for (std::uint32_t p = 0; p < count; ++p) order_.push_back(p);
  // Padded to a multiple of two elements a rank.
  const auto numel = static_cast<std::uint32_t>(scenario.numel());
  partition_ = (numel + 2 * world - 1) / (2 * world) * 2;
}

BufferMeaning RecordedLayout::of(const std::string& name, std::uint32_t rank, std::uint32_t event, std::size_t numel) const {
  const auto count = static_cast<std::uint32_t>(scenario_.parameters.size());
  const auto parameter = [&](const std::string& before, const std::string& after) {
    const auto p = number_in(name, before, after);
    return p && *p < count ? p : std::nullopt;
  };
  const auto whole_of = [&](std::uint32_t p) { return std::vector<Stretch>{{static_cast<std::int32_t>(p), 0, scenario_.parameters[p].numel}}; };
  BufferMeaning out;
  if (const auto p = parameter("param", ".grad")) out = {role_of_gradient(event), whole_of(*p)};
  else if (const auto q = parameter("param", ".grad_accum")) out = {role_of_gradient(event), whole_of(*q)};
  else if (number_in(name, "averaged_gradients[", "]")) out = {Role::reduced_accumulator, partition(rank)};
  else if (const auto a = parameter("accumulated_grads_in_cpu[param", "]")) out = {Role::reduced_accumulator, owned_part(*a, rank)};
  else if (const auto b = parameter("all_grad_tensors[0][param", "]")) out = {Role::reduced_accumulator, owned_part(*b, rank)};
  else if (number_in(name, "single_partition_of_fp32_groups[", "].grad")) out = {Role::master_gradient, partition(rank)};
  else if (number_in(name, "fp32_groups_gradients_flat[", "]")) out = {Role::replicated_accumulator, whole(), false};
  else if (number_in(name, "fp32_groups_gradient_flat_partition[", "]")) out = {Role::replicated_accumulator, partition(rank), false};
  else if (const auto s = parameter("grad_partition[param", "]")) out = {Role::reduced_accumulator, shard(*s, rank)};
  else if (const auto g = number_in(name, "fp32_partition.grad[", "]")) out = {Role::master_gradient, sub_group(*g, rank)};
  out.on_host = deepspeed_config(scenario_).offloads_optimizer() && (out.role == Role::master_gradient || name.starts_with("accumulated_grads_in_cpu"));
  if (elements_of(out.stretches) != numel) out = {Role::scratch, {{-1, 0, static_cast<std::uint32_t>(numel)}}};
  return out;
}

// Autograd's own sum, until something is reduced: from then on it may share its memory with a bucket or a partition, which a recording does not say.
Role RecordedLayout::role_of_gradient(std::uint32_t event) const {
  if (division_ == Division::bf16_optimizer) return Role::scratch;
  if (division_ == Division::none) return Role::replicated_accumulator;
  const std::uint32_t window = timeline_.events[event].documented;
  if (timeline_.closes(timeline_.events[event], Layer::documented)) return Role::scratch;
  return timeline_.reduction_before(event + 1, window) == never || timeline_.waits_for_reduction(event) ? Role::local_accumulator : Role::scratch;
}

std::vector<Stretch> RecordedLayout::whole() const {
  std::vector<Stretch> out;
  std::uint64_t numel = 0;
  for (const std::uint32_t p : order_) {
    out.push_back({static_cast<std::int32_t>(p), 0, scenario_.parameters[p].numel});
    numel += scenario_.parameters[p].numel;
  }
  if (const std::uint64_t padding = partition_ * scenario_.world_size - numel; padding > 0) out.push_back({-1, 0, padding});
  return out;
}

std::vector<Stretch> RecordedLayout::partition(std::uint32_t rank) const {
  const std::uint64_t begin = std::uint64_t{rank} * partition_, end = begin + partition_;
  std::vector<Stretch> out;
  std::uint64_t at = 0;
  for (const Stretch& stretch : whole()) {
    const std::uint64_t from = std::max(begin, at), to = std::min(end, at + stretch.numel);
    if (from < to) out.push_back({stretch.parameter, stretch.parameter < 0 ? 0 : static_cast<std::uint32_t>(from - at), static_cast<std::uint32_t>(to - from)});
    at += stretch.numel;
  }
  return out;
}

// As long as the parameter; the rank answers for what of it lies in its partition.
std::vector<Stretch> RecordedLayout::owned_part(std::uint32_t parameter, std::uint32_t rank) const {
  const std::uint64_t numel = scenario_.parameters[parameter].numel;
  for (const Stretch& stretch : partition(rank)) {
    if (stretch.parameter != static_cast<std::int32_t>(parameter)) continue;
    std::vector<Stretch> out;
    if (stretch.offset > 0) out.push_back({-1, 0, stretch.offset});
    out.push_back(stretch);
    if (const std::uint64_t end = stretch.offset + stretch.numel; end < numel) out.push_back({-1, 0, numel - end});
    return out;
  }
  return {{-1, 0, numel}};
}

// Stage 3 divides each parameter by itself.
std::vector<Stretch> RecordedLayout::shard(std::uint32_t parameter, std::uint32_t rank) const {
  const std::uint64_t numel = scenario_.parameters[parameter].numel, size = (numel + scenario_.world_size - 1) / scenario_.world_size;
  const auto begin = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{rank} * size, numel));
  const std::uint64_t real = std::min(size, numel - begin);
  std::vector<Stretch> out;
  if (real > 0) out.push_back({static_cast<std::int32_t>(parameter), begin, real});
  if (real < size) out.push_back({-1, 0, size - real});
  return out;
}

// Parameters in order, until their shards are as many elements as a sub-group may have.
std::vector<Stretch> RecordedLayout::sub_group(std::uint32_t group, std::uint32_t rank) const {
  std::vector<std::vector<Stretch>> groups(1);
  std::uint64_t elements = 0;
  for (std::uint32_t p = 0; p < scenario_.parameters.size(); ++p) {
    for (const Stretch& stretch : shard(p, rank)) {
      groups.back().push_back(stretch);
      elements += stretch.numel;
    }
    if (elements < deepspeed_config(scenario_).zero.sub_group_size || p + 1 == scenario_.parameters.size()) continue;
    groups.emplace_back();
    elements = 0;
  }
  return group < groups.size() ? groups[group] : std::vector<Stretch>{};
}

std::vector<Stretch> RecordedLayout::stepped_by(std::uint32_t rank) const {
  std::vector<Stretch> out;
  if (division_ == Division::flat || division_ == Division::bf16_optimizer) out = partition(rank);
  else if (division_ == Division::sharded)
    for (std::uint32_t p = 0; p < scenario_.parameters.size(); ++p)
      for (const Stretch& stretch : shard(p, rank)) out.push_back(stretch);
  else
    for (std::uint32_t p = 0; p < scenario_.parameters.size(); ++p) out.push_back({static_cast<std::int32_t>(p), 0, scenario_.parameters[p].numel});
  std::erase_if(out, [](const Stretch& stretch) { return stretch.parameter < 0; });
  return out;
}

}  // namespace gradledger::conform
