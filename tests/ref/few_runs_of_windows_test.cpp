// A GradScaler's loop that does not clear gradients, judged in few runs: two of them have every second window alone.
#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "sim/load.h"
#include "tests/support/few_runs.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

// rest: members of a scenario file.
Scenario loop_of(int world, const std::string& model_dtype, const std::string& rest) {
  const auto read = read_scenario(fmt::format(R"({{"name": "a", "world_size": {}, "parameters": [{{"name": "p0", "numel": 13}}, {{"name": "p1", "numel": 17}}],
    "model_dtype": "{}", {}}})",
                                              world, model_dtype, rest),
                                  ".");
  EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().text());
  return read.value();
}

Scenario sharded_loop() {
  return loop_of(2, "bf16", R"("engine": {"framework": "fsdp2", "as_of": "2.13.0", "config": {"grad_scaler": {}}, "optimizer": {"type": "SGD", "lr": 1.0}},
    "script": [{"backward": {}}, {"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {}}, {"step": {}}, {"backward": {}}])");
}

TEST(few_runs_of_windows, tell_weights_that_sums_of_all_windows_round_away) {
  const Scenario s = sharded_loop();
  const JudgedInFew few = judged_in_few(s);
  EXPECT_EQ(classes(few.verdict), classes(judge(s))) << sentences(few.verdict);
  EXPECT_TRUE(classes(few.verdict).contains("stale-gradient"));
  EXPECT_FALSE(few.verdict.each_alone);
  EXPECT_LE(few.runs, 5u);
}

// What is left lies there when no_sync() begins and ends, which are events of the window to come.
TEST(few_runs_of_windows, are_made_where_other_events_come_between_what_is_left_and_the_next_backward) {
  const Scenario s =
      loop_of(1, "fp32", R"("engine": {"framework": "fsdp1", "as_of": "2.15.0", "config": {"sharding_strategy": "NO_SHARD", "mixed_precision": {"param_dtype": "fp16",
    "reduce_dtype": "fp32"}, "grad_scaler": {"init_scale": 1024.0}}, "optimizer": {"type": "SGD", "lr": 1.0}},
    "contract": {"window": "since_last_step", "average_over": "world", "divide_by": "window"},
    "script": [{"backward": {}}, {"backward": {}}, {"step": {}}, {"no_sync": [{"backward": {"uses": ["p0"]}}, {"backward": {}}, {"backward": {}}]}, {"backward": {}},
    {"no_sync": [{"backward": {}}, {"backward": {}}, {"backward": {}}]}, {"backward": {}}, {"no_sync": [{"backward": {}}, {"backward": {}}, {"backward": {}}]}, {"backward": {}},
    {"step": {}}])");
  const std::set<std::string> names = classes(judge(s));
  EXPECT_TRUE(names.contains("stale-gradient"));
  const JudgedInFew few = judged_in_few(s);
  EXPECT_EQ(classes(few.verdict), names) << sentences(few.verdict);
}

// Of each rank nothing comes behind a step whose gradients are all 0.
class StopsWithoutGradients final : public Producer {
 public:
  explicit StopsWithoutGradients(Producer& inner) : inner_(inner) {}

  std::string_view name() const override { return "stops without gradients"; }
  Capabilities capabilities() const override { return inner_.capabilities(); }
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override {
    Stopping stopping(sink);
    const RunSummary out = inner_.run(source, options, stopping);
    stopped_ += !stopping.stopped.empty();
    return out;
  }
  std::uint32_t stopped() const { return stopped_; }

 private:
  struct Stopping final : TraceSink {
    explicit Stopping(TraceSink& to_sink) : to(to_sink) {}
    void observe(const Observation& o) override {
      if (stopped.contains(o.rank)) return;
      if (o.role == Role::applied_gradient && std::none_of(o.pieces.begin(), o.pieces.end(), [](const ObservedPiece& piece) { return holds_any(piece); })) stopped.insert(o.rank);
      else to.observe(o);
    }
    void step_fact(const StepRecord& r) override {
      if (!stopped.contains(r.rank)) to.step_fact(r);
    }
    void event_done(std::uint32_t rank, std::uint32_t event) override {
      if (!stopped.contains(rank)) to.event_done(rank, event);
    }
    static bool holds_any(const ObservedPiece& piece) {
      const auto* const begin = static_cast<const std::byte*>(piece.data);
      return std::any_of(begin, begin + std::size_t{piece.numel} * size_of(piece.dtype), [](std::byte b) { return b != std::byte{0}; });
    }

    TraceSink& to;
    std::set<std::uint32_t> stopped;
  };

  Producer& inner_;
  std::uint32_t stopped_ = 0;
};

TEST(few_runs_of_windows, say_nothing_of_what_ranks_show_where_an_optimizer_stops_without_gradients) {
  const Scenario s = sharded_loop();
  const Timeline timeline = make_timeline(s).value();
  const auto inner = make_producer(s, timeline);
  StopsWithoutGradients producer(*inner);
  const JudgedInFew stopped = judged_in_few(s, timeline, producer), whole = judged_in_few(s);
  EXPECT_GT(producer.stopped(), 0u);
  EXPECT_EQ(classes(stopped.verdict), classes(whole.verdict)) << sentences(stopped.verdict);
  EXPECT_EQ(stopped.verdict.coverage.judged, whole.verdict.coverage.judged);
  EXPECT_EQ(stopped.verdict.coverage.not_shown, whole.verdict.coverage.not_shown);
  for (const std::string& what : stopped.verdict.left_out) EXPECT_EQ(what.find("did not come through"), std::string::npos) << what;
}

}  // namespace
}  // namespace gradledger::testing
