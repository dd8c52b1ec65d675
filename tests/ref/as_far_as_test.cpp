// What a run that goes past the end of another one shows is left out.
#include <gtest/gtest.h>

#include "ref/as_far_as.h"

namespace gradledger::testing {
namespace {

struct Listener final : TraceSink {
  void observe(const Observation& o) override { all.push_back(std::to_string(o.event) + std::string(o.buffer)); }
  void event_done(std::uint32_t, std::uint32_t event) override { all.push_back(std::to_string(event)); }
  std::vector<std::string> all;
};

void show(TraceSink& to, std::uint32_t rank, std::uint32_t event, std::string_view buffer) {
  Observation o;
  o.rank = rank;
  o.event = event;
  o.buffer = buffer;
  to.observe(o);
}

// Rank 0 shows a, and stops in event 1; rank 1 comes through.
void run(TraceSink& to) {
  to.event_done(0, 0);
  show(to, 0, 1, "a");
  show(to, 1, 1, "a");
  to.event_done(1, 1);
}

// Likewise, without a stop.
std::vector<std::string> longer_run_of(const ref::Reached& reached, std::uint32_t rank) {
  Listener listener;
  ref::AsFarAs sink(reached, listener);
  show(sink, rank, 0, "a");
  sink.event_done(rank, 0);
  show(sink, rank, 1, "a");
  show(sink, rank, 1, "b");
  show(sink, rank, 2, "a");
  sink.event_done(rank, 2);
  return listener.all;
}

TEST(a_longer_run, shows_what_a_run_that_stopped_came_to) {
  for (const bool raised : {false, true}) {
    ref::Reached reached(2);
    run(reached);
    if (raised) reached.engine_error({0, 1, "RuntimeError", "stopped"});
    else reached.deadlock({});
    EXPECT_EQ(longer_run_of(reached, 0), (std::vector<std::string>{"0a", "0", "1a"})) << "of the event that it stopped in, what it showed";
    EXPECT_EQ(longer_run_of(reached, 1), (std::vector<std::string>{"0a", "0", "1a", "1b"})) << "an event that it came through";
  }
}

TEST(a_longer_run, shows_all_where_the_other_one_did_not_stop) {
  ref::Reached reached(2);
  run(reached);
  EXPECT_EQ(longer_run_of(reached, 0), (std::vector<std::string>{"0a", "0", "1a", "1b", "2a", "2"}));
}

}  // namespace
}  // namespace gradledger::testing
