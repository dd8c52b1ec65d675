#include "conformance/trace/pass_key.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "sim/base/hash.h"

namespace gradledger::conform {
namespace {

constexpr std::uint32_t elements_at_a_time = 1u << 16;

// Every NaN is one: which of them a producer is given makes no difference.
void add(TraceHash& hash, double x) { hash.add(std::bit_cast<std::uint64_t>(std::isnan(x) ? std::numeric_limits<double>::quiet_NaN() : x)); }

// `give` fills a stretch of a parameter from an offset.
template <class Give>
void add_parameters(TraceHash& hash, const Workload& workload, const Give& give) {
  std::vector<double> values;
  for (std::uint32_t p = 0; p < workload.parameters.size(); ++p)
    for (std::uint64_t offset = 0; offset < workload.parameters[p].numel; offset += elements_at_a_time) {
      values.assign(std::min<std::uint64_t>(elements_at_a_time, workload.parameters[p].numel - offset), 0);
      give(p, static_cast<std::uint32_t>(offset), std::span(values));
      for (const double x : values) add(hash, x);
    }
}

void add_network(TraceHash& hash, const Timeline& timeline, const NetworkData& data) {
  std::vector<float> input(data.network().layers.front().in), target(data.network().layers.back().out);
  for (std::uint32_t b = 0; b < timeline.backwards.size(); ++b)
    for (std::uint32_t r = 0; r < timeline.world_size; ++r)
      for (std::uint32_t sample = 0; sample < data.batch() && timeline.backwards[b].micro_batch[r] != no_contribution; ++sample) {
        data.sample(b, r, sample, input, target);
        for (const float x : input) add(hash, x);
        for (const float x : target) add(hash, x);
      }
}

}  // namespace

std::uint64_t key_of(const Workload& workload, const Timeline& timeline, const GradientSource& source, const RunOptions& options) {
  TraceHash hash;
  for (const bool flag : {options.observe_events, options.linear, options.wide, options.dry, options.show_reductions, options.check_streams}) hash.add(flag);
  hash.add(static_cast<std::uint64_t>(options.schedule.policy));
  hash.add(options.schedule.seed);
  for (const std::uint16_t decision : options.schedule.decisions) hash.add(decision);
  if (options.dry) return hash.value();  // asks for no gradient
  add_parameters(hash, workload, [&](std::uint32_t p, std::uint64_t offset, std::span<double> out) { source.initial_parameter(p, offset, out); });
  if (const NetworkData* network = source.network_data()) {
    add_network(hash, timeline, *network);
    return hash.value();
  }
  for (std::uint32_t b = 0; b < timeline.backwards.size(); ++b)
    for (std::uint32_t r = 0; r < timeline.world_size; ++r)
      if (timeline.backwards[b].micro_batch[r] != no_contribution)
        add_parameters(hash, workload, [&](std::uint32_t p, std::uint64_t offset, std::span<double> out) { source.gradient(b, r, p, offset, out); });
  return hash.value();
}

std::string key_text(std::uint64_t key) { return fmt::format("{:016x}", key); }

}  // namespace gradledger::conform
