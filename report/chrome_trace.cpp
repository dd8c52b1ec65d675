#include "report/chrome_trace.h"

#include <algorithm>
#include <array>
#include <tuple>

#include <fmt/format.h>

#include "report/json_parts.h"

namespace gradledger::report {
namespace {

class TraceEvents {
 public:
  explicit TraceEvents(const Lanes& lanes) : lanes_(lanes) {}

  ordered_json all() && {
    for (std::uint32_t r = 0; r < lanes_.ranks.size(); ++r) rank(r);
    for (std::size_t m = 0; m < lanes_.meetings.size(); ++m) flow(m);
    for (const RaceRecord& race : lanes_.races) mark(race);
    // Readers take any order; sorted, a thread's slices can be followed by eye, those that hold others first.
    std::stable_sort(events_.begin(), events_.end(), [](const Entry& a, const Entry& b) { return std::tuple(a.time, a.depth) < std::tuple(b.time, b.depth); });
    ordered_json out = ordered_json::array();
    for (Entry& entry : events_) out.push_back(std::move(entry.json));
    return out;
  }

 private:
  struct Entry {
    std::uint64_t time = 0;
    int depth = 0;  // metadata, outer slices, operations, what is bound to them
    ordered_json json;
  };
  using Operations = std::vector<const LaneOperation*>;

  void name(const char* what, std::uint32_t rank, std::size_t thread, const std::string& text) {
    events_.push_back({0, 0, {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", text}}}}});
  }

  void slice(int depth, const std::string& text, const char* category, std::uint32_t rank, std::size_t thread, std::uint64_t begin, std::uint64_t end, ordered_json args) {
    events_.push_back(
        {begin, depth, {{"name", text}, {"cat", category}, {"ph", "X"}, {"pid", rank}, {"tid", thread}, {"ts", begin}, {"dur", end - begin}, {"args", std::move(args)}}});
  }

  void rank(std::uint32_t r) {
    name("process_name", r, 0, fmt::format("rank {}", r));
    std::array<Operations, stream_count> by_stream;
    for (const LaneOperation& operation : lanes_.ranks[r]) by_stream[static_cast<std::size_t>(operation.stream)].push_back(&operation);
    for (std::size_t s = 0; s < stream_count; ++s) {
      if (by_stream[s].empty()) continue;
      name("thread_name", r, s, std::string(gradledger::name_of(static_cast<Stream>(s))));
      lane(r, s, by_stream[s]);
    }
  }

  void lane(std::uint32_t r, std::size_t s, const Operations& operations) {
    for (std::size_t first = 0, next = 0; first < operations.size(); first = next) {
      const LaneOperation& head = *operations[first];
      while (next < operations.size() && operations[next]->event == head.event && operations[next]->at_start == head.at_start) ++next;
      const std::string what = head.at_start ? "start" : lanes_.events.at(head.event).what;
      slice(1, what, "event", r, s, head.begin, operations[next - 1]->end, {{"event", head.event}});
      for (std::size_t i = first; i < next; ++i) operation(r, s, *operations[i]);
    }
  }

  void operation(std::uint32_t r, std::size_t s, const LaneOperation& o) {
    ordered_json args{{"operation", o.number}};
    if (o.meeting) args["complete"] = lanes_.meetings[*o.meeting].complete;
    slice(2, o.meeting ? lanes_.meetings[*o.meeting].what : std::string(gradledger::name_of(o.kind)), o.meeting ? "collective" : "operation", r, s, o.begin, o.end,
          std::move(args));
  }

  // From the rank that came first, by the others, to the one that came last.
  void flow(std::size_t m) {
    const Meeting& meeting = lanes_.meetings[m];
    for (std::size_t i = 0; i < meeting.members.size() && meeting.members.size() > 1; ++i) {
      const auto& [rank, index] = meeting.members[i];
      const LaneOperation& o = lanes_.ranks[rank][index];
      const bool last = i + 1 == meeting.members.size();
      ordered_json json{
          {"name", meeting.what}, {"cat", "collective"}, {"ph", i == 0 ? "s" : last ? "f" : "t"}, {"id", m}, {"pid", rank}, {"tid", static_cast<std::size_t>(o.stream)},
          {"ts", o.begin}};
      if (last) json["bp"] = "e";  // bound to the slice around it, not to the next one
      events_.push_back({o.begin, 3, std::move(json)});
    }
  }

  void mark(const RaceRecord& race) {
    for (const RacingOperation* one : {&race.first, &race.second}) {
      const auto& operations = lanes_.ranks[race.rank];
      const auto at = std::find_if(operations.begin(), operations.end(), [&](const LaneOperation& o) { return o.number == one->number; });
      if (at == operations.end()) continue;
      events_.push_back({at->begin,
                         3,
                         {{"name", fmt::format("race on {}", race.buffer)},
                          {"cat", "race"},
                          {"ph", "i"},
                          {"s", "t"},
                          {"pid", race.rank},
                          {"tid", static_cast<std::size_t>(at->stream)},
                          {"ts", at->begin},
                          {"args", {{"first", race.first.operation}, {"second", race.second.operation}, {"begin", race.begin}, {"end", race.end}}}}});
    }
  }

  const Lanes& lanes_;
  std::vector<Entry> events_;
};

}  // namespace

std::string chrome_trace(const Lanes& lanes, const std::string& command) {
  ordered_json out{{"traceEvents", TraceEvents(lanes).all()}, {"displayTimeUnit", "ns"}};
  out["otherData"] = {{"tool", version_text()}, {"command", command}, {"time", "no clock: one operation is one microsecond, and begins as soon as its program lets it"}};
  return json_line(out);
}

}  // namespace gradledger::report
