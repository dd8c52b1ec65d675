// Order and accesses on the streams of one rank, by vector clocks. Who feeds it with a program of the simulator, or with what a real
// framework reports, enqueues operations in the order in which the host does, and says what each waits for, reads and writes.
//
// Ordered are: operations of one stream; host work and what the host enqueues after it; a record and what follows a wait for it; what was
// enqueued before a synchronize and the host after it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gradledger {

// Stretches of a buffer, first and past the last.
struct StretchRange {
  std::size_t first = 0, last = 0;

  bool operator==(const StretchRange&) const = default;
};

// The index of the stretch that begins there, which is made where there is none. A stretch has begin and end; a list is in order, without gaps.
template <class Stretch>
std::size_t cut_stretches(std::vector<Stretch>& all, std::uint64_t place) {
  if (place == 0) return 0;
  if (place >= all.back().end) return all.size();
  const auto at = std::lower_bound(all.begin(), all.end(), place, [](const Stretch& s, std::uint64_t p) { return s.begin < p; });
  const auto index = static_cast<std::size_t>(at - all.begin());
  if (at != all.end() && at->begin == place) return index;
  Stretch rest = all[index - 1];
  rest.begin = place;
  all[index - 1].end = place;
  all.insert(all.begin() + static_cast<std::ptrdiff_t>(index), rest);
  return index;
}

// Those that make it up, cut where it begins and ends.
template <class Stretch>
StretchRange stretches_within(std::vector<Stretch>& all, std::uint64_t begin, std::uint64_t end) {
  if (all.size() == 1 && begin == 0 && end >= all.front().end) return {0, 1};  // most often
  const std::size_t first = cut_stretches(all, begin);
  if (first < all.size() && all[first].end == end) return {first, first + 1};
  return {first, cut_stretches(all, end)};
}

// One in the place of several: the first of them, which is as it was.
template <class Stretch>
Stretch& one_stretch(std::vector<Stretch>& all, StretchRange range) {
  if (range.last > range.first + 1) all.erase(all.begin() + static_cast<std::ptrdiff_t>(range.first) + 1, all.begin() + static_cast<std::ptrdiff_t>(range.last));
  return all[range.first];
}

// Clock is an array or a vector of std::uint32_t: for each stream, operations below this number are over. Stream 0 is the host.
template <class Clock>
class StreamOrder {
 public:
  static constexpr std::size_t host = 0;

  // Who touched a stretch of a buffer last: numbers of operations plus one, 0 for nobody.
  struct Stretch {
    std::uint64_t begin = 0, end = 0;
    std::uint32_t written = 0;
    std::uint32_t writer = 0;  // stream
    Clock read{};              // by stream
    bool was_read = false;     // by any
    bool by_one = true;        // at most
    std::uint32_t reader = 0;  // stream, the first
  };
  using History = std::vector<Stretch>;  // of a buffer, in order, without gaps

  static History untouched(std::uint64_t size) { return {Stretch{.end = size}}; }

  explicit StreamOrder(std::size_t streams) : clock_(streams), seen_(streams) {}

  void add_stream() {
    clock_.emplace_back();
    seen_.push_back(0);
  }
  std::size_t streams() const { return clock_.size(); }

  // What follows, up to the next one, is done by this operation. Numbers rise. What the host has passed by now is what it comes after.
  void enqueue(std::uint32_t number, std::size_t stream) {
    at_ = number;
    stream_ = stream;
    if (host_version_ == seen_[stream]) return;
    join(clock_[stream], clock_[host]);
    seen_[stream] = host_version_;
  }

  // What is over once the stream has come this far.
  Clock reached() const {
    Clock out = clock_[stream_];
    raise(out, stream_, at_);
    return out;
  }
  void wait(const Clock& reached) {
    join(clock_[stream_], reached);
    if (stream_ == host) ++host_version_;
  }
  void synchronize() {
    for (std::size_t s = 1; s < clock_.size(); ++s) {
      join(clock_[host], clock_[s]);
      raise(clock_[host], s, at_);
    }
    ++host_version_;
  }

  // `report` is called with the stretch and the number (plus one) of the earlier access, for each that nothing orders before this operation.
  template <class Report>
  StretchRange read(History& all, std::uint64_t begin, std::uint64_t end, Report&& report) {
    const StretchRange range = stretches_within(all, begin, end);
    for (std::size_t i = range.first; i < range.last; ++i) read(all[i], report);
    return range;
  }

  template <class Report>
  StretchRange write(History& all, std::uint64_t begin, std::uint64_t end, Report&& report) {
    const StretchRange range = stretches_within(all, begin, end);
    for (std::size_t i = range.first; i < range.last; ++i) conflicts(all[i], report, nullptr);
    Stretch& stretch = one_stretch(all, range);
    stretch.begin = begin;
    stretch.end = end;
    write(stretch);
    return range;
  }

  // Likewise of all of a stretch.
  template <class Report>
  void read(Stretch& stretch, Report&& report) {
    if (!ordered(stretch.written, stretch.writer)) report(stretch, stretch.written);
    raise(stretch.read, stream_, at_ + 1);
    if (!std::exchange(stretch.was_read, true)) stretch.reader = static_cast<std::uint32_t>(stream_);
    stretch.by_one = stretch.by_one && stretch.reader == stream_;
  }
  template <class Report>
  void write(Stretch& stretch, Report&& report) {
    conflicts(stretch, report, nullptr);
    write(stretch);
  }

  // As a write of all of it by somebody who has waited for `also` besides; nothing is remembered.
  template <class Report>
  void check_reuse(const History& all, const Clock& also, Report&& report) const {
    for (const Stretch& stretch : all) conflicts(stretch, report, &also);
  }

  static void join(Clock& into, const Clock& other) {
    for (std::size_t s = 0; s < other.size(); ++s) raise(into, s, other[s]);
  }

 private:
  static std::uint32_t at(const Clock& clock, std::size_t s) { return s < clock.size() ? clock[s] : 0; }
  static void raise(Clock& clock, std::size_t s, std::uint32_t to) {
    if constexpr (requires { clock.resize(s); })
      if (s >= clock.size()) clock.resize(s + 1);
    clock[s] = std::max(clock[s], to);
  }

  void write(Stretch& stretch) {
    stretch.written = at_ + 1;
    stretch.writer = static_cast<std::uint32_t>(stream_);
    if (std::exchange(stretch.was_read, false)) stretch.read = {};
    stretch.by_one = true;
    stretch.reader = 0;
  }

  // An operation of the same stream, or of the host, that was enqueued earlier is over.
  bool ordered(std::uint32_t number, std::size_t stream) const { return number == 0 || stream == stream_ || stream == host || number <= at(clock_[stream_], stream); }

  template <class Report>
  void conflicts(const Stretch& stretch, Report&& report, const Clock* also) const {
    const auto over = [&](std::uint32_t number, std::size_t stream) { return ordered(number, stream) || (also && number <= at(*also, stream)); };
    if (!over(stretch.written, stretch.writer)) report(stretch, stretch.written);
    if (!stretch.was_read) return;
    const std::size_t first = stretch.by_one ? stretch.reader : 0, last = stretch.by_one ? first + 1 : stretch.read.size();
    for (std::size_t s = std::max<std::size_t>(first, 1); s < last; ++s)
      if (!over(stretch.read[s], s)) report(stretch, stretch.read[s]);
  }

  std::vector<Clock> clock_;
  std::vector<std::uint32_t> seen_;  // version of the host's clock that a stream has joined
  std::uint32_t host_version_ = 0;
  std::uint32_t at_ = 0;
  std::size_t stream_ = host;
};

}  // namespace gradledger
