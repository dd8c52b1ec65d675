#include "verbs/lanes.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "sim/scenario/layout.h"
#include "sim/frameworks/framework.h"

namespace gradledger::verbs {
namespace {

using report::LaneOperation;
using report::Lanes;

// Of more operations a page draws no time line: their programs are not kept for one.
constexpr std::uint64_t drawn_operations_max = 1u << 23;

// Storage and order take no time, and are not shown unless they race; neither are snapshots, which the framework does not make.
bool takes_time(OpKind kind) { return (kind >= OpKind::deposit && kind <= OpKind::collective) || kind == OpKind::read; }

// When each operation begins at the earliest: heads of streams move on until none can.
class Clockwork {
 public:
  Clockwork(const Timeline& timeline, std::span<const Rank> ranks, const std::vector<std::vector<std::uint32_t>>& groups, std::vector<RaceRecord> races)
      : ranks_(ranks), groups_(groups) {
    for (const RaceRecord& race : races)
      for (const RacingOperation* one : {&race.first, &race.second}) racing_.emplace(race.rank, one->number);
    out_.races = std::move(races);
    for (std::uint32_t e = 0; e < timeline.events.size(); ++e) {
      const std::string what = timeline.describe(e);
      out_.events.push_back({what.substr(what.find(": ") + 2), timeline.events[e].step});
    }
    out_.ranks.resize(ranks.size());
    for (const Rank& rank : ranks) at_.push_back({rank.program.first, {}, {}, {}, std::vector<std::optional<std::uint64_t>>(rank.program.stream_events), {}, {}});
  }

  Lanes run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t r = 0; r < ranks_.size(); ++r)
        for (std::size_t s = 0; s < stream_count; ++s)
          while (advance(r, s)) moved = true;
    }
    close_what_waits();
    return std::move(out_);
  }

 private:
  struct Progress {
    StreamHeads head;
    std::array<std::uint64_t, stream_count> free{};             // when the stream is done with what it did
    std::array<bool, stream_count> waits{};                     // at a collective
    std::vector<std::pair<std::uint32_t, std::uint64_t>> host;  // operations of the host and when they ended
    std::vector<std::optional<std::uint64_t>> recorded;         // stream events
    std::array<std::vector<std::uint64_t>, send_lines> sent{};  // when
    std::array<std::size_t, send_lines> received{};
  };

  // Whether the head of a stream ran.
  bool advance(std::uint32_t r, std::size_t s) {
    Progress& rank = at_[r];
    const std::uint32_t head = rank.head[s];
    if (head == no_index || rank.waits[s]) return false;
    const Op& op = ranks_[r].program.ops[head];
    std::uint64_t begin = rank.free[s];
    if (s != host_) {
      if (rank.head[host_] < head) return false;  // the host has not come there yet
      const auto before = std::lower_bound(rank.host.begin(), rank.host.end(), std::pair(head, std::uint64_t{0}));
      if (before != rank.host.begin()) begin = std::max(begin, std::prev(before)->second);
    }
    if (op.kind == OpKind::wait) {
      if (!rank.recorded[op.index]) return false;
      begin = std::max(begin, *rank.recorded[op.index]);
    }
    if (op.kind == OpKind::synchronize)
      for (std::size_t other = 0; other < stream_count; ++other) {
        if (other == s) continue;
        if (rank.head[other] < head) return false;
        begin = std::max(begin, rank.free[other]);
      }
    if (op.kind == OpKind::collective) {
      arrive(r, s, op, begin);
      return true;
    }
    if (op.kind == OpKind::send) rank.sent[op.flag].push_back(begin);
    if (op.kind == OpKind::receive) {
      const std::vector<std::uint64_t>& sent = at_[other_rank(r, op)].sent[op.flag];
      if (rank.received[op.flag] >= sent.size()) return false;
      begin = std::max(begin, sent[rank.received[op.flag]++]);
    }
    finish(r, s, op, begin, begin + (is_shown(r, head) ? 1 : 0));
    return true;
  }

  void finish(std::uint32_t r, std::size_t s, const Op& op, std::uint64_t begin, std::uint64_t end) {
    Progress& rank = at_[r];
    if (op.kind != OpKind::collective && is_shown(r, rank.head[s])) show(r, s, op, begin, end);
    if (op.kind == OpKind::record) rank.recorded[op.index] = end;
    if (s == host_) rank.host.emplace_back(rank.head[s], end);
    rank.free[s] = end;
    rank.head[s] = op.next;
    out_.end = std::max(out_.end, end);
  }

  bool is_shown(std::uint32_t r, std::uint32_t number) const { return takes_time(ranks_[r].program.ops[number].kind) || racing_.contains({r, number}); }

  LaneOperation& show(std::uint32_t r, std::size_t s, const Op& op, std::uint64_t begin, std::uint64_t end) {
    const std::uint32_t number = at_[r].head[s];
    return out_.ranks[r].emplace_back(LaneOperation{op.kind, static_cast<Stream>(s), op.event, number, number < ranks_[r].operations_at_start, begin, end, std::nullopt});
  }

  // A collective begins for a rank when it is there, and ends for all one unit after the last of them came.
  void arrive(std::uint32_t r, std::size_t s, const Op& op, std::uint64_t begin) {
    const Program& program = ranks_[r].program;
    const CollectiveCall& call = program.collectives[op.index];
    const auto [found, fresh] = meeting_of_.try_emplace({call.line(), call.sequence}, static_cast<std::uint32_t>(out_.meetings.size()));
    if (fresh) {
      const CollectiveRecord record{r,         op.event,    call.group, call.sequence, call.kind, call.op, call.purpose, program.buffers[call.input.buffer].dtype, call.input.numel,
                                    call.root, call.factor, {}};
      out_.meetings.push_back({record.text(), call.purpose, {}, false});
    }
    report::Meeting& meeting = out_.meetings[found->second];
    meeting.members.emplace_back(r, static_cast<std::uint32_t>(out_.ranks[r].size()));
    show(r, s, op, begin, begin).meeting = found->second;
    at_[r].waits[s] = true;
    if (meeting.members.size() < groups_.at(call.group).size()) return;
    meeting.complete = true;
    const auto begin_of = [&](const auto& member) { return out_.ranks[member.first][member.second].begin; };
    std::stable_sort(meeting.members.begin(), meeting.members.end(), [&](const auto& a, const auto& b) { return begin_of(a) < begin_of(b); });
    const std::uint64_t end = begin_of(meeting.members.back()) + 1;
    for (const auto& [member, index] : meeting.members) {
      LaneOperation& operation = out_.ranks[member][index];
      const auto stream = static_cast<std::size_t>(operation.stream);
      operation.end = end;
      at_[member].waits[stream] = false;
      finish(member, stream, ranks_[member].program.ops[operation.number], operation.begin, end);
    }
  }

  // A collective that some ranks never reach lasts to the end.
  void close_what_waits() {
    ++out_.end;
    for (std::vector<LaneOperation>& rank : out_.ranks) {
      for (LaneOperation& operation : rank)
        if (operation.meeting && !out_.meetings[*operation.meeting].complete) operation.end = out_.end;
    }
  }

  static constexpr std::size_t host_ = static_cast<std::size_t>(Stream::host);
  std::span<const Rank> ranks_;
  const std::vector<std::vector<std::uint32_t>>& groups_;
  std::vector<Progress> at_;
  std::map<std::pair<std::size_t, std::uint32_t>, std::uint32_t> meeting_of_;  // by line and number
  std::set<std::pair<std::uint32_t, std::uint32_t>> racing_;                   // rank and number
  Lanes out_;
};

class Races final : public TraceSink {
 public:
  void race(const RaceRecord& record) override { seen.push_back(record); }
  std::vector<RaceRecord> seen;
};

}  // namespace

Lanes lanes_of(const Timeline& timeline, std::span<const Rank> ranks, const std::vector<std::vector<std::uint32_t>>& groups, std::vector<RaceRecord> races) {
  return Clockwork(timeline, ranks, groups, std::move(races)).run();
}

void add_picture(const Loaded& loaded, const Options& options, report::Report& report, Picture picture) {
  Lanes& lanes = report.lanes.emplace();
  if (options.driver) {
    lanes.left_out = "a real framework ran the script, and shows neither streams nor memory";
    return;
  }
  Races races;
  try {
    if (picture == Picture::page && report.run.operations > drawn_operations_max) {
      lanes.left_out = fmt::format("{} operations are more than a page draws; --chrome-trace writes all of them, where they fit --memory-limit", report.run.operations);
      report.accounting = account(loaded, options, nullptr);
      return;
    }
    const auto look = [&](std::span<const Rank> ranks) { lanes = lanes_of(loaded.timeline, ranks, process_groups(loaded.scenario), std::move(races.seen)); };
    report.accounting = account(loaded, options, &races, look);
  } catch (const ProgramsTooLarge&) {
    lanes = {};
    lanes.left_out = programs_too_large(loaded, options).text();
  }
}

}  // namespace gradledger::verbs
