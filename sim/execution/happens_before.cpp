#include "sim/execution/happens_before.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/base/limits.h"

namespace gradledger {
namespace {

// For each stream, operations below this number are over.
using Clock = std::array<std::uint32_t, stream_count>;

void join(Clock& into, const Clock& other) {
  for (std::size_t s = 0; s < stream_count; ++s) into[s] = std::max(into[s], other[s]);
}

// Who touched a stretch of elements last: numbers of operations plus one, 0 for nobody.
struct Stretch {
  std::uint32_t begin = 0, end = 0;
  std::uint32_t written = 0;
  Stream writer = Stream::host;
  Clock read{};  // by stream
};

class Check {
 public:
  Check(const Program& program, std::uint32_t rank) : program_(program), rank_(rank), recorded_(program.stream_events), stretches_(program.buffers.size()) {
    for (std::size_t b = 0; b < stretches_.size(); ++b) stretches_[b].push_back({0, program.buffers[b].numel, 0, Stream::host, {}});
  }

  // In the order of enqueueing, which every schedule may take: what the host has passed by then is what an operation comes after.
  std::vector<RaceRecord> run() {
    for (std::uint32_t at = 0; at < program_.ops.size() && races_.size() < limits::races_reported_max; ++at) {
      const Op& op = program_.ops[at];
      const auto s = static_cast<std::size_t>(op.stream);
      if (host_version_ != seen_[s]) {
        join(clock_[s], host());
        seen_[s] = host_version_;
      }
      at_ = at;
      stream_ = op.stream;
      visit(op);
    }
    return std::move(races_);
  }

 private:
  Clock& host() { return clock_[0]; }

  void visit(const Op& op) {
    switch (op.kind) {
      case OpKind::record: return record(op.index);
      case OpKind::wait: return wait(op.index);
      case OpKind::synchronize: return synchronize(op.flag != 0);
      case OpKind::release:
      case OpKind::deposit:
      case OpKind::fill: return write(op.target);
      case OpKind::copy:
      case OpKind::accumulate:
      case OpKind::squared_norm:
      case OpKind::check_finite: read(op.source); return write(op.target);
      case OpKind::multiply:
      case OpKind::divide:
      case OpKind::square_root: return write(op.target);
      case OpKind::sgd:
      case OpKind::adam: return update(program_.updates[op.index]);
      case OpKind::collective: {
        const CollectiveCall& call = program_.collectives[op.index];
        read(call.input);
        return write(call.output);
      }
      case OpKind::read:
      case OpKind::report: return read(op.source);
      case OpKind::allocate:  // gets memory as its release left it
      case OpKind::observe:
      case OpKind::end_event: return;
    }
  }

  void update(const UpdateCall& call) {
    read(call.gradient);
    for (const Slice& state : {call.parameter, call.first_moment, call.second_moment}) write(state);
  }

  // ---- order ----------------------------------------------------------------------------------------------------------------------

  void record(std::uint32_t stream_event) {
    Clock& out = recorded_[stream_event];
    out = clock_[static_cast<std::size_t>(stream_)];
    out[static_cast<std::size_t>(stream_)] = at_;
  }

  void wait(std::uint32_t stream_event) {
    join(clock_[static_cast<std::size_t>(stream_)], recorded_[stream_event]);
    if (stream_ == Stream::host) ++host_version_;
  }

  void synchronize(bool for_snapshot) {
    if (for_snapshot) return;
    for (std::size_t s = 1; s < stream_count; ++s) {
      join(host(), clock_[s]);
      host()[s] = at_;
    }
    ++host_version_;
  }

  // An operation of the same stream, or of the host, that comes earlier in the program is over.
  bool ordered(std::uint32_t number, Stream stream) const {
    return number == 0 || stream == stream_ || stream == Stream::host || number <= clock_[static_cast<std::size_t>(stream_)][static_cast<std::size_t>(stream)];
  }

  // ---- accesses -------------------------------------------------------------------------------------------------------------------

  void read(Slice slice) {
    if (slice.numel == 0 || slice.buffer == no_index) return;
    std::vector<Stretch>& all = stretches_[slice.buffer];
    const auto [first, last] = within(all, slice);
    for (std::size_t i = first; i < last; ++i) {
      if (!ordered(all[i].written, all[i].writer)) report(slice.buffer, all[i], all[i].written);
      all[i].read[static_cast<std::size_t>(stream_)] = at_ + 1;
    }
  }

  void write(Slice slice) {
    if (slice.numel == 0 || slice.buffer == no_index) return;
    std::vector<Stretch>& all = stretches_[slice.buffer];
    const auto [first, last] = within(all, slice);
    for (std::size_t i = first; i < last; ++i) {
      if (!ordered(all[i].written, all[i].writer)) report(slice.buffer, all[i], all[i].written);
      for (std::size_t s = 1; s < stream_count; ++s)
        if (!ordered(all[i].read[s], static_cast<Stream>(s))) report(slice.buffer, all[i], all[i].read[s]);
    }
    all[first] = {slice.offset, slice.offset + slice.numel, at_ + 1, stream_, {}};
    if (last > first + 1) all.erase(all.begin() + static_cast<std::ptrdiff_t>(first) + 1, all.begin() + static_cast<std::ptrdiff_t>(last));
  }

  // The stretches that make up the slice, first and past the last, cut where it begins and ends.
  static std::pair<std::size_t, std::size_t> within(std::vector<Stretch>& all, Slice slice) {
    const std::size_t first = cut(all, slice.offset);
    return {first, cut(all, slice.offset + slice.numel)};
  }

  // The index of the stretch that begins at the element, which is made where there is none.
  static std::size_t cut(std::vector<Stretch>& all, std::uint32_t element) {
    if (element == 0) return 0;
    if (element >= all.back().end) return all.size();
    const auto at = std::lower_bound(all.begin(), all.end(), element, [](const Stretch& s, std::uint32_t e) { return s.begin < e; });
    const auto index = static_cast<std::size_t>(at - all.begin());
    if (at != all.end() && at->begin == element) return index;
    Stretch rest = all[index - 1];
    rest.begin = element;
    all[index - 1].end = element;
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(index), rest);
    return index;
  }

  // ---- what is found --------------------------------------------------------------------------------------------------------------

  RacingOperation describe(std::uint32_t number) const {
    const Op& op = program_.ops[number];
    std::string text(name_of(op.kind));
    if (op.kind == OpKind::collective) {
      const CollectiveCall& call = program_.collectives[op.index];
      text = std::string(name_of(call.kind)) + " (" + std::string(name_of(call.purpose)) + ")";
    }
    return {std::move(text), name_of(op.stream), op.event, number};
  }

  void report(BufferId buffer, const Stretch& stretch, std::uint32_t earlier) {
    RaceRecord race{rank_, program_.ops[at_].event, program_.buffers[buffer].name, stretch.begin, stretch.end, describe(earlier - 1), describe(at_)};
    const auto alike = [&](const RaceRecord& known) {
      return known.buffer == race.buffer && known.first.operation == race.first.operation && known.first.stream == race.first.stream &&
             known.second.operation == race.second.operation && known.second.stream == race.second.stream;
    };
    if (std::none_of(races_.begin(), races_.end(), alike)) races_.push_back(std::move(race));
  }

  const Program& program_;
  std::uint32_t rank_;
  std::uint32_t at_ = 0;
  Stream stream_ = Stream::host;
  std::array<Clock, stream_count> clock_{};
  std::array<std::uint32_t, stream_count> seen_{};  // version of the host's clock that a stream has joined
  std::uint32_t host_version_ = 0;
  std::vector<Clock> recorded_;                  // by stream event
  std::vector<std::vector<Stretch>> stretches_;  // by buffer, in order, without gaps
  std::vector<RaceRecord> races_;
};

}  // namespace

std::vector<RaceRecord> stream_races(const Program& program, std::uint32_t rank) { return Check(program, rank).run(); }

}  // namespace gradledger
