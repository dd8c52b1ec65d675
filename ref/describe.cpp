#include "ref/describe.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "sim/base/rational.h"

namespace gradledger::ref {

std::string weight_text(double weight) {
  // Weights are quotients of whole numbers in fp64, up to a few roundings of it.
  constexpr std::int64_t terms_max = 1 << 18;
  constexpr double near = 16 * std::numeric_limits<double>::epsilon();
  if (const auto quotient = simplest_within(weight, near * std::abs(weight), terms_max)) return text_of(*quotient);
  int exponent;
  const double fraction = std::frexp(weight, &exponent);
  if (fraction == 0.5) return fmt::format("2^{}", exponent - 1);
  return fmt::format("{:.6g}", weight);
}

std::string observed_text(double weight, bool misplaced) {
  if (!misplaced) return weight_text(weight);
  return weight == 0 ? "misplaced" : weight_text(weight) + " and misplaced";
}

std::string numbers_text(std::vector<std::uint32_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    out += out.empty() ? "" : ", ";
    out += i == j ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[j]);
    i = j + 1;
  }
  return out;
}

std::string numbered(std::string_view noun, const std::vector<std::uint32_t>& numbers) {
  const std::set<std::uint32_t> distinct(numbers.begin(), numbers.end());
  return fmt::format("{}{} {}", noun, distinct.size() == 1 ? "" : noun.ends_with("h") ? "es" : "s", numbers_text(numbers));
}

std::string contributions_text(const std::vector<Miscounted>& contributions, std::uint32_t step) {
  // By step, then by the set of ranks, the micro-batches that share it.
  std::map<std::uint32_t, std::map<std::uint32_t, std::vector<std::uint32_t>>> ranks_of;  // step -> micro-batch -> ranks
  for (const Miscounted& m : contributions) ranks_of[m.contribution.step][m.contribution.micro_batch].push_back(m.contribution.rank);
  std::string out;
  for (auto& [at, by_micro_batch] : ranks_of) {
    std::map<std::vector<std::uint32_t>, std::vector<std::uint32_t>> groups;
    for (auto& [micro_batch, ranks] : by_micro_batch) {
      if (!std::is_sorted(ranks.begin(), ranks.end())) std::sort(ranks.begin(), ranks.end());
      ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
      groups[std::move(ranks)].push_back(micro_batch);
    }
    for (const auto& [ranks, micro_batches] : groups) {
      out += out.empty() ? "" : "; ";
      out += numbered("micro-batch", micro_batches) + " of " + numbered("rank", ranks);
      if (at != step) out += fmt::format(" from step {}", at);
    }
  }
  return out;
}

std::string elements_text(const std::vector<std::string>& parameters, const std::vector<ElementRange>& elements, std::size_t ranges_max) {
  std::string out;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (i == ranges_max) return out + fmt::format(", and {} more range{}", elements.size() - i, elements.size() - i == 1 ? "" : "s");
    out += fmt::format("{}{}[{}:{}]", i ? ", " : "", parameters[elements[i].parameter], elements[i].begin, elements[i].end);
  }
  return out;
}

std::string elements_text(const Workload& workload, const std::vector<ElementRange>& elements) {
  std::vector<std::string> names;
  for (const Parameter& p : workload.parameters) names.push_back(p.name);
  std::vector<ElementRange> in_the_whole = elements;
  for (ElementRange& range : in_the_whole) {
    const Parameter& p = workload.parameters[range.parameter];
    const std::uint64_t before = p.part ? p.part->number * p.numel : 0;
    range.begin += before;
    range.end += before;
  }
  return elements_text(names, in_the_whole);
}

namespace {

// "weight 0 instead of 1/2"; where own and peer contributions differ, "its own with weight 1, the others with 0, instead of 1/2".
std::string weights_of(const std::vector<Miscounted>& contributions, std::uint32_t rank) {
  std::set<std::string> own, peer, expected;
  std::set<std::tuple<bool, std::uint64_t, std::uint64_t>> seen;  // millions of contributions have few weights
  for (const Miscounted& m : contributions) {
    const bool is_own = m.contribution.rank == rank;
    if (!seen.emplace(is_own, std::bit_cast<std::uint64_t>(m.observed), std::bit_cast<std::uint64_t>(m.expected)).second) continue;
    (is_own ? own : peer).insert(weight_text(m.observed));
    expected.insert(weight_text(m.expected));
  }
  const std::string due = fmt::format("instead of {}", fmt::join(expected, " or "));
  if (own.empty() || peer.empty() || own == peer) return fmt::format("weight {} {}", fmt::join(own.empty() ? peer : own, " or "), due);
  return fmt::format("its own with weight {}, the others with {}, {}", fmt::join(own, " or "), fmt::join(peer, " or "), due);
}

// Whether another rank's contribution got in after all, as where one of two averages is missing.
bool shared_by_some(const Finding& f) {
  return std::any_of(f.contributions.begin(), f.contributions.end(), [&](const Miscounted& m) { return m.contribution.rank != f.rank && m.observed != 0; });
}

std::string what_happened(const Finding& f) {
  const std::string who = contributions_text(f.contributions, f.step);
  const std::string weights = weights_of(f.contributions, f.rank);
  using enum FindingClass;
  switch (f.finding) {
    case discarded_gradient: return fmt::format("{} {} ({})", who, f.role == Role::applied_gradient ? "never reached the step" : "are not in it", weights);
    case offload_loss: return fmt::format("{} got lost on the way through the host accumulator ({})", who, weights);
    case boundary_leak: return fmt::format("what ran at the boundary stayed private to its rank: {} ({})", who, weights);
    case stale_gradient: return fmt::format("{} still counted where nothing of them is due ({})", who, weights);
    case duplicated_gradient: return fmt::format("{} counted more than once ({})", who, weights);
    case missing_reduction:
      return fmt::format("{} of {} ({})", shared_by_some(f) ? "the average was taken over some of the ranks alone" : "no average over ranks was taken", who, weights);
    case wrong_scale:
      if (!f.as_if.empty()) return fmt::format("{}, and the contract says otherwise: {} ({})", f.as_if, who, weights);
      return fmt::format("{} counted with a wrong scale ({})", who, weights);
    case wrong_group: return fmt::format("averaged over other ranks than the contract says: {} ({})", who, weights);
    case misplaced_shard: return "elements hold what belongs to other elements";
    default: return "";
  }
}

}  // namespace

std::string race_text(const Race& race, const Timeline& timeline) {
  const RaceRecord& r = race.record;
  const auto where = [&](const RacingOperation& o) {
    const std::string when = o.event == no_event ? "before the first event" : timeline.describe(o.event);
    return o.site.empty() ? when : fmt::format("{}; {}", o.site, when);
  };
  const auto on = [](const RacingOperation& o) { return fmt::format("{}{}", o.stream, o.site.empty() || !o.stream.ends_with("stream") ? " stream" : ""); };
  std::string out = fmt::format("stream-race: rank {}, {}[{}:{}]{}: nothing orders {} on the {} ({}) and {} on the {} ({}); {} must wait for the {}'s {}", r.rank, r.buffer,
                                r.begin, r.end, r.in_bytes ? " in bytes" : "", r.first.operation, on(r.first), where(r.first), r.second.operation, on(r.second), where(r.second),
                                r.second.stream == "host" ? "the host" : fmt::format("the {}", on(r.second)), on(r.first), r.first.operation);
  if (r.in_bytes) return out + ".";  // a real framework's operations run as they are enqueued, whatever the schedule
  if (race.schedule_seed) return out + fmt::format(". Schedule seed {} shows it in the values.", *race.schedule_seed);
  return out + fmt::format(". None of {} schedules tried shows it in the values.", race.schedules_tried);
}

std::string sentence_of(const Finding& f, const Workload& workload, const Timeline& timeline) {
  std::string out = fmt::format("{}: in step {}, rank {}, {} ({}), {}{}", name_of(f.finding), f.step, f.rank, f.buffer, elements_text(workload, f.elements),
                                f.varies && f.finding != FindingClass::misplaced_shard ? "not the same in all of them: " : "", what_happened(f));
  if (f.lost_weight > 0 && f.finding != FindingClass::misplaced_shard) {
    out += fmt::format("; {}{} of the window's weight is missing", f.varies ? "up to " : "", weight_text(f.lost_weight));
    if (f.finding == FindingClass::discarded_gradient || f.finding == FindingClass::offload_loss)
      out += fmt::format(": {} {} of the window's batch", f.varies ? "some elements follow only" : "these elements follow", weight_text(1 - f.lost_weight));
  }
  if (!f.open.empty()) {
    std::vector<Miscounted> open;
    for (const Contribution& contribution : f.open) open.push_back({contribution, 0, 0});
    out += fmt::format("; how much {} weigh, the runs leave open", contributions_text(open, f.step));
  }
  if (!f.alike.empty()) {
    std::vector<Miscounted> alike;
    for (const Contribution& contribution : f.alike) alike.push_back({contribution, 0, 0});
    out += fmt::format("; some of these have the same data as {}, so that it may be of those", contributions_text(alike, f.step));
  }
  out += fmt::format("; first out of balance at {}.", timeline.describe(f.first_event));
  return out;
}

}  // namespace gradledger::ref
