#include "sim/execution/alike_programs.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

namespace gradledger {

namespace {

// Slices beside its target and its source, or another thing as its source.
bool names_more(const Op& op) {
  constexpr auto all = [](auto... kinds) { return ((std::uint32_t{1} << static_cast<int>(kinds)) | ...); }(OpKind::deposit, OpKind::interleave, OpKind::part_rows, OpKind::sgd,
                                                                                                           OpKind::adam, OpKind::collective);
  return (all >> static_cast<int>(op.kind) & 1) != 0;
}

// But for the slices, and for which operation comes next on its stream.
bool does_the_same(const Op& a, const Op& b) {
  static_assert(offsetof(Op, event) == 4 && sizeof a.event == 4, "what precedes the next operation is eight bytes");
  std::uint64_t of_a, of_b;
  std::memcpy(&of_a, &a, sizeof of_a);
  std::memcpy(&of_b, &b, sizeof of_b);
  return of_a == of_b && a.index == b.index && std::bit_cast<std::uint64_t>(a.scalar) == std::bit_cast<std::uint64_t>(b.scalar);
}

}  // namespace

void AlikePrograms::begin(std::uint32_t r, bool by_itself) {
  for (std::size_t i = by_itself ? 0 : leaders_.size(); i-- > 0 && leaders_.size() - i <= leaders_tried;)
    if (joins(r, leaders_[i])) return;
  OfRank& rank = of_rank_[r];
  rank.leader = r;
  leaders_.push_back(r);
  rank.check = std::make_unique<StreamCheck>(r);
  record(r, true);
  if (leaders_.size() > leaders_tried) {  // nobody is compared with that one any more
    const std::uint32_t old = leaders_[leaders_.size() - 1 - leaders_tried];
    if (of_rank_[old].followers.empty()) forget(old);
  }
}

// Whether it does the same as the first that the other one's log has. Precondition: up to there it has.
bool AlikePrograms::joins(std::uint32_t r, std::uint32_t leader) {
  OfRank &rank = of_rank_[r], &of = of_rank_[leader];
  rank.leader = leader;
  rank.differences = {};
  rank.slices = 0;
  if (of.log.empty() || of.log_begin > 0 || !same(r, of.log.front())) return false;
  rank.place = of.followers.size();
  of.followers.push_back(r);
  rank.next = 1;
  rank.compared += static_cast<std::uint32_t>(of.log.front().ops.size());
  return true;
}

void AlikePrograms::wrote(std::uint32_t r, bool kept) {
  if (follows(r)) return catch_up(r, false);
  kept = kept || !of_rank_[r].followers.empty() || may_be_joined(r);
  if (!may_be_joined(r)) forget(r);
  record(r, kept);
}

void AlikePrograms::stand_as(std::uint32_t r, std::uint32_t other) {
  OfRank &rank = of_rank_[r], &of = of_rank_[other];
  expects(of.leader == other, "a rank stands as one does that follows another");
  rank.leader = other;
  rank.compared = of.compared;
  rank.next = of.log_begin + of.log.size();
  rank.extents.clear();
  rank.place = of.followers.size();
  of.followers.push_back(r);
}

void AlikePrograms::stand_by_itself(std::uint32_t r) {
  OfRank& rank = of_rank_[r];
  const std::uint32_t from = rank.leader;
  drop(r);
  rank.leader = r;
  rank.check = std::make_unique<StreamCheck>(r, *of_rank_[from].check, of_rank_[from].check->mark(), std::vector<StreamCheck::Extents>{});
  rank.extents.clear();
}

// Precondition: it stands as a leader does that has what it wrote last.
void AlikePrograms::back_by_one(std::uint32_t r) {
  OfRank& rank = of_rank_[r];
  --rank.next;
  rank.compared = of_rank_[rank.leader].log.back().begin;
}

void AlikePrograms::catch_up(bool ended) {
  for (std::uint32_t r = 0; r < of_rank_.size(); ++r)
    if (follows(r)) catch_up(r, ended);
}

std::uint64_t AlikePrograms::take_differences(std::uint32_t r) {
  of_rank_[r].slices = 0;
  return std::exchange(of_rank_[r].differences, {}).value();
}

bool AlikePrograms::has_races() const {
  return std::any_of(of_rank_.begin(), of_rank_.end(), [](const OfRank& rank) { return rank.check && !rank.check->races().empty(); });
}

const std::vector<RaceRecord>& AlikePrograms::races(std::uint32_t r) const {
  static const std::vector<RaceRecord> none;  // a race ends what ranks have in common
  return of_rank_[r].check ? of_rank_[r].check->races() : none;
}

// ---- the leader ---------------------------------------------------------------------------------------------------------------------

void AlikePrograms::record(std::uint32_t r, bool kept) {
  OfRank& rank = of_rank_[r];
  const Program& program = ranks_[r].program;
  const std::uint32_t begin = std::exchange(rank.compared, static_cast<std::uint32_t>(program.ops.size()));
  if (!kept) {
    ++rank.log_begin;  // the log is empty
    return rank.check->follow(program);
  }
  Written& written = rank.log.emplace_back();
  written.begin = begin;
  written.before = rank.check->mark();
  for (std::uint32_t at = begin; at < rank.compared; ++at) {
    const Op& op = written.ops.emplace_back(program.ops[at]);
    written.first_access.push_back(static_cast<std::uint32_t>(written.accesses.size()));
    const auto take = [&](Slice slice, bool writes) {
      if (slice.numel > 0 && slice.buffer != no_index) written.accesses.push_back({slice, writes});
    };
    each_access(
        op, program, [&](Slice s) { take(s, false); }, [&](Slice s) { take(s, true); });
  }
  written.first_access.push_back(static_cast<std::uint32_t>(written.accesses.size()));
  written.buffers = static_cast<std::uint32_t>(program.buffers.size());
  rank.check->follow(program, &written.met);
  written.races = !rank.check->races().empty();
}

// What all followers have behind them.
void AlikePrograms::forget(std::uint32_t leader) {
  OfRank& of = of_rank_[leader];
  std::uint64_t first = of.log_begin + of.log.size();
  for (const std::uint32_t follower : of.followers) first = std::min(first, of_rank_[follower].next);
  for (; of.log_begin < first; ++of.log_begin) of.log.pop_front();
}

// ---- who follows --------------------------------------------------------------------------------------------------------------------

void AlikePrograms::catch_up(std::uint32_t r, bool ended) {
  OfRank& rank = of_rank_[r];
  const Program& program = ranks_[r].program;
  while (follows(r) && rank.compared < program.ops.size()) {
    const OfRank& of = of_rank_[rank.leader];
    const bool ahead = rank.next - of.log_begin == of.log.size();
    if (ahead && !ended && !ranks_[rank.leader].emitted_all) return;
    if (ahead || !same(r, of.log[rank.next - of.log_begin])) {
      part(r);
      continue;
    }
    rank.compared += static_cast<std::uint32_t>(of.log[rank.next - of.log_begin].ops.size());
    ++rank.next;
  }
}

// Whether the rank wrote the same from there on. If not, its buffers are cut as they were.
bool AlikePrograms::same(std::uint32_t r, const Written& written) {
  ++comparison_;
  before_.clear();
  if (!written.races && meets_the_same(r, written)) return true;
  for (auto& [buffer, extents] : before_) of_rank_[r].extents[buffer] = std::move(extents);
  return false;
}

bool AlikePrograms::meets_the_same(std::uint32_t r, const Written& written) {
  OfRank& rank = of_rank_[r];
  const Program &program = ranks_[r].program, &of_leader = ranks_[rank.leader].program;
  if (program.ops.size() < written.begin + written.ops.size() || !same_buffers(r, rank.leader, written.buffers)) return false;
  for (std::size_t i = 0; i < written.ops.size(); ++i) {
    const Op& op = program.ops[written.begin + i];
    const Op& other = written.ops[i];
    if (!names_more(op) && does_the_same(op, other) && op.target == other.target && op.source == other.source) {  // most often
      rank.slices += 2;
      const auto cut_as_the_leaders = [&](const Slice& slice) { return slice.buffer == no_index || rank.extents[slice.buffer].empty(); };
      if (cut_as_the_leaders(op.target) && cut_as_the_leaders(op.source)) continue;
    } else if (!same_operation(op, other, r, of_leader)) {
      return false;
    }
    std::uint32_t access = written.first_access[i];
    const std::uint32_t end = written.first_access[i + 1];
    bool alike = true;
    const auto look = [&](Slice slice) {
      if (slice.numel == 0 || slice.buffer == no_index) return;
      if (access == end) alike = false;
      if (!alike) return;
      const bool as_the_leader = rank.extents[slice.buffer].empty() && slice == written.accesses[access].slice;
      alike = as_the_leader || meets(r, slice, written, access);
      ++access;
    };
    each_access(op, program, look, look);
    if (!alike || access != end) return false;
  }
  return true;
}

// Whether an access meets the same stretches as the leader's does.
bool AlikePrograms::meets(std::uint32_t r, Slice slice, const Written& written, std::uint32_t access) {
  StreamCheck::Extents& all = of_rank_[r].extents[slice.buffer];
  if (kept_in_.size() <= slice.buffer) kept_in_.resize(slice.buffer + 1, 0);
  if (std::exchange(kept_in_[slice.buffer], comparison_) != comparison_) before_.emplace_back(slice.buffer, all);
  if (all.empty()) cut_as_the_leader(r, slice.buffer, written, access);
  const StretchRange range = cut(all, {slice, written.accesses[access].writes});
  return written.met[access] == StreamCheck::Met{range, all.size()};
}

// As the leader's buffer was before an access.
void AlikePrograms::cut_as_the_leader(std::uint32_t r, BufferId buffer, const Written& written, std::uint32_t access) {
  StreamCheck::Extents& all = of_rank_[r].extents[buffer];
  all = written.before.extents(buffer);
  if (all.empty()) all.push_back({0, ranks_[r].program.buffers[buffer].numel});  // declared since
  for (std::uint32_t a = 0; a < access; ++a)
    if (written.accesses[a].slice.buffer == buffer) cut(all, written.accesses[a]);
}

// As an access of StreamOrder does.
StretchRange AlikePrograms::cut(StreamCheck::Extents& all, const Access& access) {
  const std::uint64_t begin = access.slice.offset, end = begin + access.slice.numel;
  const StretchRange range = stretches_within(all, begin, end);
  if (access.writes) one_stretch(all, range) = {begin, end};
  return range;
}

// Of a rank that followed somebody up to a mark, and now follows another one that stood at its own.
void AlikePrograms::compare_extents(std::uint32_t r, const StreamCheck::Mark& with, const StreamCheck::Mark& before) {
  std::vector<StreamCheck::Extents>& extents = of_rank_[r].extents;
  for (BufferId b = 0; b < extents.size(); ++b) {
    if (extents[b].empty()) extents[b] = before.extents(b);
    if (extents[b] == with.extents(b)) extents[b].clear();
  }
}

bool AlikePrograms::same_buffers(std::uint32_t r, std::uint32_t leader, std::uint32_t count) {
  const std::vector<BufferDeclaration>&own = ranks_[r].program.buffers, &others = ranks_[leader].program.buffers;
  if (own.size() < count) return false;
  std::vector<StreamCheck::Extents>& extents = of_rank_[r].extents;
  for (std::size_t b = extents.size(); b < count; ++b) {
    if (own[b].numel != others[b].numel || own[b].dtype != others[b].dtype || own[b].space != others[b].space || own[b].declared_bytes != others[b].declared_bytes) return false;
    extents.emplace_back();
  }
  return true;
}

// Elements may lie elsewhere; that is what the ranks differ in.
bool AlikePrograms::moved(Slice own, Slice of_leader, OfRank& rank) {
  rank.differences.add(rank.slices, own.offset);
  rank.differences.add(own.numel, 0);
  return own.buffer == of_leader.buffer;
}

bool AlikePrograms::same_operation(const Op& own, const Op& other, std::uint32_t r, const Program& leader) {
  if (!does_the_same(own, other)) return false;
  if (!same_slice(own.target, other.target, r) || !same_slice(own.source, other.source, r)) return false;
  const Program& program = ranks_[r].program;
  switch (own.kind) {
    case OpKind::collective: {
      const CollectiveCall &a = program.collectives[own.index], &b = leader.collectives[own.index];
      return a.kind == b.kind && a.op == b.op && a.purpose == b.purpose && a.line() == b.line() && a.sequence == b.sequence && a.root == b.root &&
             std::bit_cast<std::uint64_t>(a.factor) == std::bit_cast<std::uint64_t>(b.factor) && a.compressed_numel == b.compressed_numel && same_slice(a.input, b.input, r) &&
             same_slice(a.output, b.output, r);
    }
    case OpKind::interleave:
    case OpKind::part_rows: {
      const Interleaving &a = program.interleavings[own.index], &b = leader.interleavings[own.index];
      return a.rows == b.rows && std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), b.parts.end(),
                                            [&](const auto& x, const auto& y) { return x.chunk == y.chunk && same_slice(x.slice, y.slice, r); });
    }
    case OpKind::sgd:
    case OpKind::adam: {
      const UpdateCall &a = program.updates[own.index], &b = leader.updates[own.index];
      return same_slice(a.parameter, b.parameter, r) && same_slice(a.gradient, b.gradient, r) && same_slice(a.first_moment, b.first_moment, r) &&
             same_slice(a.second_moment, b.second_moment, r);
    }
    default: return true;
  }
}

// From what was compared last on it follows one that parted there before, or has a check of its own.
void AlikePrograms::part(std::uint32_t r) {
  OfRank& rank = of_rank_[r];
  const std::uint32_t from = rank.leader;
  const std::uint64_t at = rank.next;
  OfRank& of = of_rank_[from];
  drop(r);
  const std::uint64_t entry = at - of.log_begin;
  const StreamCheck::Mark mark = entry < of.log.size() ? of.log[entry].before : of.check->mark();
  const std::vector<StreamCheck::Extents> extents = rank.extents;
  for (std::size_t i = of.parted.size(); i-- > 0 && of.parted.size() - i <= leaders_tried;) {
    const OfRank& other = of_rank_[of.parted[i]];
    if (other.parted_at != at || other.log.empty() || other.log_begin > 0) continue;
    compare_extents(r, other.log.front().before, mark);
    if (joins(r, of.parted[i])) return;
    rank.extents = extents;
  }
  rank.leader = r;
  rank.check = std::make_unique<StreamCheck>(r, *of.check, mark, extents);
  rank.extents.clear();
  rank.parted_from = from;
  rank.parted_at = at;
  of.parted.push_back(r);
  record(r, true);
}

void AlikePrograms::drop(std::uint32_t follower) {
  std::vector<std::uint32_t>& all = of_rank_[of_rank_[follower].leader].followers;
  const std::size_t place = of_rank_[follower].place;
  all[place] = all.back();
  of_rank_[all[place]].place = place;
  all.pop_back();
}

// Others may still part from the one that it followed, at the same place.
bool AlikePrograms::may_be_joined(std::uint32_t r) const {
  const OfRank& rank = of_rank_[r];
  if (rank.parted_from == no_index) return false;
  const std::vector<std::uint32_t>&others = of_rank_[rank.parted_from].followers, &parted = of_rank_[rank.parted_from].parted;
  const auto first = parted.end() - static_cast<std::ptrdiff_t>(std::min(parted.size(), leaders_tried));
  if (std::find(first, parted.end(), r) == parted.end()) return false;
  return std::any_of(others.begin(), others.end(), [&](std::uint32_t other) { return of_rank_[other].next <= rank.parted_at; });
}

}  // namespace gradledger
