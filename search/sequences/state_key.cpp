#include "search/sequences/state_key.h"

#include "sim/engine/state_fold.h"

namespace gradledger::search {
namespace {

std::uint64_t contents_of(const Rank& rank, Slice slice, std::uint64_t salt) {
  const Storage& storage = rank.memory.storage(slice.buffer);
  const std::size_t width = size_of(rank.program.buffers[slice.buffer].dtype);
  TraceHash hash;
  hash.add(salt ^ (storage.live ? 1 : 2));
  const std::size_t begin = slice.offset * width, end = begin + slice.numel * width;
  // What was never written holds poison, and is a state of its own.
  hash.add(storage.holds(slice) ? 1 : 2);
  if (end <= storage.bytes.size()) hash.add_bytes({storage.bytes.data() + begin, end - begin});
  return hash.value();
}

// What the contract makes of the sequence so far: the open window's contributions, and where the documented counter stands.
void add_contract(TraceHash& hash, const Scenario& scenario, const Timeline& timeline) {
  const std::uint32_t window = timeline.steps - 1;
  hash.add(window % window_period);
  const std::uint32_t reduced = !timeline.reductions.empty() && timeline.events[timeline.reductions.back()].step == window ? timeline.reductions.back() : never;
  hash.add(!timeline.apart.empty() && timeline.events[timeline.apart.back()].step == window);
  for (const std::uint32_t count : timeline.micro_batches.back()) hash.add(count);
  for (std::size_t b = 0; b < timeline.backwards.size(); ++b) {
    const Backward& backward = timeline.backwards[b];
    if (backward.step != window) continue;
    for (std::uint32_t r = 0; r < scenario.world_size; ++r)
      if (backward.micro_batch[r] != no_contribution)
        hash.add((std::uint64_t{r} << 32) | (std::uint64_t{backward.micro_batch[r]} << 2) | ((reduced != never && backward.event <= reduced) ? 2u : 0u) |
                 (timeline.dropped_at[b][r] == never));
  }
  for (std::uint32_t r = 0; r < scenario.world_size; ++r) {
    std::uint64_t calls = 0, override_value = 0;
    for (const Event& event : timeline.events) {
      if (!event.runs_on(r)) continue;
      calls += event.is<events::Step>();
      if (const auto* set = event.as<events::SetBoundary>()) override_value = set->boundary ? 1 : 2;
    }
    hash.add(calls % timeline.contract.boundary.calls);
    hash.add(override_value);
  }
}

// What was sent, and not received yet.
void add_sends(TraceHash& hash, std::span<const Rank> ranks) {
  for (const Rank& rank : ranks)
    for (std::size_t line = 0; line < send_lines; ++line)
      if (rank.sends.sent[line] > 0) hash.add(rank.sends.sent[line] - ranks[rank.sends.sent_to[line]].sends.received[line]);
}

}  // namespace

StateKey state_key(const Scenario& scenario, const Timeline& timeline, std::span<const Rank> ranks, std::uint32_t open_blocks, std::uint64_t use) {
  StateKey key;
  for (std::size_t word = 0; word < key.words.size(); ++word) {
    const std::uint64_t salt = mix(word + 1);
    TraceHash hash;
    hash.add(salt);
    hash.add(open_blocks);
    hash.add(use);
    add_contract(hash, scenario, timeline);
    add_sends(hash, ranks);
    for (const Rank& rank : ranks) {
      StateFold fold([&](Slice slice) { return contents_of(rank, slice, salt); });
      rank.engine->fold(fold);
      hash.add(fold.value());
    }
    key.words[word] = mix(hash.value() ^ salt);
  }
  return key;
}

}  // namespace gradledger::search
