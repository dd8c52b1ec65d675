#include "search/streams/meetings.h"

#include <algorithm>

#include "sim/execution/rendezvous.h"

namespace gradledger::search {

Meetings::Meetings(std::span<const Rank> ranks, std::vector<std::vector<std::uint32_t>> groups, CollectiveArithmetic arithmetic, Interner& contents)
    : ranks_(ranks), groups_(std::move(groups)), arithmetic_(arithmetic), contents_(contents) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> numbers;  // of group and sequence
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    const Program& program = ranks_[r].program;
    meeting_of_.emplace_back(program.collectives.size(), no_index);
    for (std::uint32_t at = 0; at < program.ops.size(); ++at) {
      if (program.ops[at].kind != OpKind::collective) continue;
      const CollectiveCall& call = program.collectives[program.ops[at].index];
      const auto [known, is_new] = numbers.emplace(std::pair(call.line(), call.sequence), static_cast<std::uint32_t>(meetings_.size()));
      if (is_new) {
        meetings_.push_back({call.group, {}});
        for (std::uint32_t member : groups_[call.group]) meetings_.back().members.push_back({member, no_index, Stream::host});
      }
      meeting_of_[r][program.ops[at].index] = known->second;
      std::vector<Member>& members = meetings_[known->second].members;
      const auto self = std::find_if(members.begin(), members.end(), [r](const Member& m) { return m.rank == r; });
      expects(self != members.end(), "a rank calls a collective of a group that it is no member of");
      *self = {r, at, program.ops[at].stream};
    }
  }
}

const std::vector<Interner::Id>& Meetings::results(std::uint32_t rank, std::uint32_t op, std::vector<Interner::Id> inputs) {
  const std::uint32_t number = meeting_of_[rank][call(rank, op)];
  const auto [known, is_new] = results_.try_emplace({number, std::move(inputs)});
  if (is_new) known->second = compute(meetings_[number], known->first.second);
  return known->second;
}

std::vector<Interner::Id> Meetings::compute(const Meeting& meeting, const std::vector<Interner::Id>& inputs) {
  const std::vector<std::uint32_t>& group = groups_[meeting.group];
  const auto world = static_cast<std::uint32_t>(group.size());
  const CollectiveCall& first = call_of(meeting.members.front());
  const Dtype dtype = ranks_[group.front()].program.buffers[first.input.buffer].dtype;
  const std::uint32_t root = root_index(group, first.root);
  const std::uint64_t numel = first.kind == CollectiveKind::all_gather       ? first.input.numel * world
                              : first.kind == CollectiveKind::reduce_scatter ? first.input.numel / world
                                                                             : first.input.numel;
  std::vector<std::vector<std::byte>> read, written;
  for (Interner::Id id : inputs) {
    const auto input = contents_.of(id);
    read.emplace_back(input.begin(), input.end());
    written.emplace_back(numel * std::size_t{size_of(dtype)});
  }
  std::vector<CollectiveBuffers> buffers;
  for (std::uint32_t i = 0; i < world; ++i) buffers.push_back({read[i].data(), written[i].data()});
  run_collective(first.kind, first.op, dtype, first.input.numel, root, arithmetic_, buffers, first.factor);
  std::vector<Interner::Id> out;
  for (std::uint32_t i = 0; i < world; ++i) {
    const CollectiveCall& call = call_of(meeting.members[i]);
    const bool stays = first.kind == CollectiveKind::broadcast && i == root && call.input == call.output;
    const bool elsewhere = first.kind == CollectiveKind::reduce && i != root;
    out.push_back(stays || elsewhere ? not_written : contents_.intern(written[i]));
  }
  return out;
}

}  // namespace gradledger::search
