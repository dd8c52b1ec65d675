// What a watch tells of every rank and event is what it was shown, whatever of it ranks and rounds have in common.
#include "verbs/event_watch.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "verbs/session.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;
using Lines = std::map<std::uint32_t, std::vector<verbs::EventWatch::Alike>>;

std::string text_of(const report::EventLine::Record& record) {
  std::string out;
  for (const report::EventLine::Buffer& b : record.buffers) out += b.name + " " + std::string(name_of(b.role)) + (b.at_end ? "" : " within") + (b.norm ? " of a norm; " : "; ");
  for (const std::string& call : record.collectives) out += call + "; ";
  for (const auto& [fact, value] : record.facts) out += std::string(name_of(fact)) + " " + std::to_string(value) + "; ";
  return out;
}

// By event and rank.
std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> in_words(const Lines& lines) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> out;
  for (const auto& [event, all] : lines)
    for (const auto& alike : all)
      for (const std::uint32_t rank : alike.ranks) EXPECT_TRUE(out.try_emplace({event, rank}, text_of(*alike.record)).second) << event << " of rank " << rank << " twice";
  return out;
}

// A watch that is shown every round, one snapshot after the other.
class RoundByRound : public TraceSink, public NeedsNoRepeatedMemory {
 public:
  void weights(const WeightObservation& o) override { watch.weights(o); }
  void collective(const CollectiveRecord& r) override { watch.collective(r); }
  void step_fact(const StepRecord& r) override { watch.step_fact(r); }
  void event_done(std::uint32_t rank, std::uint32_t event) override { watch.event_done(rank, event); }
  verbs::EventWatch watch;
};

// And one that is given those that repeat.
class ByRounds final : public RoundByRound, public TakesRounds {
 public:
  void round_again(KeptRound& round) override {
    watch.round_again(round);
    ++rounds;
  }
  std::uint32_t rounds = 0;
};

CollectiveRecord call_of(std::uint32_t rank, std::uint32_t event, std::uint64_t numel) {
  CollectiveRecord call;
  call.rank = rank;
  call.event = event;
  call.numel = numel;
  return call;
}

TEST(a_watch, shares_what_ranks_and_events_have_in_common) {
  verbs::EventWatch watch;
  for (std::uint32_t event = 0; event < 3; ++event)
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      watch.collective(call_of(rank, event, rank == 2 ? 8 : 16));
      watch.event_done(rank, event);
    }
  const Lines lines = watch.lines();
  ASSERT_EQ(lines.size(), 3u);
  for (const auto& [event, all] : lines) {
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].ranks, (std::vector<std::uint32_t>{0, 1, 3}));
    EXPECT_EQ(all[1].ranks, (std::vector<std::uint32_t>{2}));
    EXPECT_EQ(all[0].record, lines.at(0)[0].record) << "the same of every event";
    EXPECT_EQ(all[1].record->collectives, (std::vector<std::string>{"all_reduce sum of 8 fp32 (gradient)"}));
  }
}

TEST(a_watch, goes_on_with_an_event_of_which_more_comes_behind_its_end) {
  verbs::EventWatch watch;
  watch.event_done(0, 5);
  watch.event_done(1, 5);
  watch.collective(call_of(1, 5, 4));
  watch.step_fact({1, 5, StepFact::updated, 1});
  const Lines lines = watch.lines();
  ASSERT_EQ(lines.at(5).size(), 2u);
  EXPECT_EQ(text_of(*lines.at(5)[0].record), "");
  EXPECT_EQ(text_of(*lines.at(5)[1].record), "all_reduce sum of 4 fp32 (gradient); updated 1.000000; ");
}

TEST(a_watch, tells_of_rounds_that_nobody_ran_what_it_would_have_been_shown) {
  const TemporaryFolder folder;
  // DeepSpeed 0.17.2 goes on counting what its bucket of stage 3 has sent.
  for (const auto& [stage, as_of] : std::vector<std::pair<int, const char*>>{{1, "0.18.9"}, {2, "0.18.9"}, {3, "0.18.9"}, {3, "0.17.2"}}) {
    SCOPED_TRACE(std::string(as_of) + ", stage " + std::to_string(stage));
    json document = {{"name", "s"}, {"world_size", 4}, {"parameters", {{{"name", "a"}, {"numel", 40}}, {{"name", "b"}, {"numel", 24}}}}, {"model_dtype", "bf16"}};
    document["engine"] = {{"framework", "deepspeed"}, {"as_of", as_of}, {"optimizer", {{"type", "SGD"}, {"lr", 0.001}}}};
    document["engine"]["config"] = {{"gradient_accumulation_steps", 16}, {"bf16", {{"enabled", true}}}, {"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 48}}}};
    document["script"] = {{{"repeat", {{"times", 32}, {"of", {{{"backward", json::object()}}, {{"step", json::object()}}}}}}}};
    const auto loaded = verbs::load(folder.write("s.json", document.dump()), {});
    ASSERT_TRUE(loaded.ok());
    verbs::Options options;
    options.executor = "symbolic";
    ByRounds rounds;
    RoundByRound each;
    verbs::judge(**loaded, options, &rounds);
    verbs::judge(**loaded, options, &each);
    EXPECT_GT(rounds.rounds, 8u) << "of two windows";
    const auto words = in_words(rounds.watch.lines());
    EXPECT_EQ(words.size(), 4u * 64);
    EXPECT_EQ(words, in_words(each.watch.lines()));
  }
}

}  // namespace
}  // namespace gradledger::testing
