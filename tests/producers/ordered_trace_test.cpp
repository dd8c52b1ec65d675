// What ranks of a real framework send, in the order in which sinks are shown it.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/producers/driver/driver_run.h"

namespace gradledger::driver {
namespace {

// Each record as "EVENT/RANK NAME", in order.
class Shown final : public TraceSink {
 public:
  void collective(const CollectiveRecord& r) override { note(r.rank, r.event, "collective"); }
  void step_fact(const StepRecord& r) override { note(r.rank, r.event, name_of(r.fact)); }
  void observe(const Observation& o) override { note(o.rank, o.event, o.buffer); }
  void event_done(std::uint32_t rank, std::uint32_t event) override { note(rank, event, "done"); }

  std::vector<std::string> order;

 private:
  void note(std::uint32_t rank, std::uint32_t event, std::string_view what) { order.push_back(std::to_string(event) + "/" + std::to_string(rank) + " " + std::string(what)); }
};

ShownBuffer buffer(const char* name, bool at_end) {
  ShownBuffer out;
  out.name = name;
  out.at_end = at_end;
  return out;
}

Done step(std::uint32_t event) {
  Done out;
  out.event = event;
  out.buffers.push_back(buffer("weights", true));
  out.buffers.push_back(buffer("applied", false));
  out.facts.emplace_back(StepFact::updated, 1.0);
  return out;
}

// What a rank is left with may be what another one's step made: its weights, once they are gathered.
TEST(ordered_trace, shows_what_all_ranks_worked_with_before_what_any_is_left_with) {
  Shown shown;
  OrderedTrace trace(2, shown);
  trace.done(1, step(0), true);
  CollectiveRecord gather;
  gather.rank = 0;
  gather.event = 0;
  trace.collective(gather);
  trace.done(0, step(0), true);
  trace.done(0, step(1), true);
  trace.hand_on(1);
  const std::vector<std::string> first{"0/0 collective", "0/0 updated", "0/0 applied", "0/1 updated", "0/1 applied", "0/0 weights", "0/0 done", "0/1 weights", "0/1 done"};
  EXPECT_EQ(shown.order, first);
  trace.finish();
  EXPECT_EQ(shown.order.size(), first.size() + 4) << "the rest, of one rank";
}

}  // namespace
}  // namespace gradledger::driver
