// Ranks that do the same are run once: a sink must see what it sees where each is run by itself. Programs are drawn, all ranks' alike but for what differs by
// rank in real ones: where a share lies, which elements a view shows, an event that one rank does not run, an operation that only one has.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "search/draw/generator.h"
#include "sim/base/hash.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/parse.h"
#include "tests/support/in_words.h"
#include "tests/support/long_windows.h"
#include "tests/support/meshes.h"
#include "tests/support/sanitized.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;

constexpr std::uint32_t chunk = 6;

struct Faults {
  std::uint32_t rank = no_index, event = no_index;  // an operation that only this rank has
  bool races = false;                               // two streams meet at that event, on all ranks
  bool places_apart = true;                         // shares of a rank may lie in place, and be summed with what lies elsewhere
  bool two = false;                                 // the next rank has such an operation too, an event later
};

// Operations on a few buffers that a seed draws, the same on all ranks.
class Drawn final : public Engine {
 public:
  Drawn(const EngineContext& context, std::uint64_t seed, const Faults& faults, const Mesh& mesh)
      : rank_(context.rank), world_(context.timeline->world_size), seed_(seed), faults_(faults), mesh_(mesh), timeline_(context.timeline) {
    if (mesh.replicas == 1) return;
    shard_group_ = group_named(*context.scenario, timeline_->contract.groups, "shard", rank_).id;
    replicate_group_ = group_named(*context.scenario, timeline_->contract.groups, "replicate", rank_).id;
  }
  std::unique_ptr<Engine> clone() const override { return std::make_unique<Drawn>(*this); }

  void initialise(ProgramWriter& w) override {
    full_ = w.declare("full", Dtype::float32, 81);
    sum_ = w.declare("sum", Dtype::float32, 81);
    wide_ = w.declare("wide", Dtype::float32, std::uint64_t{world_} * chunk);
    share_ = w.declare("share", Dtype::float32, chunk);
    gathered_ = w.declare("gathered", Dtype::float32, std::uint64_t{mesh_.replicas > 1 ? mesh_.shards : world_} * chunk);
    for (const BufferId b : {full_, sum_, wide_, share_}) {
      w.allocate(b);
      w.fill(w.whole(b), 0.0);
    }
    w.deposit(w.whole(share_).part(0, 4), no_index, 0, std::uint64_t{rank_} * 4, 1.0, false);  // its part of the weights
  }

  void handle(const Event& event, ProgramWriter& w) override {
    SplitMix64 random(hash_keys({seed_, w.event()}));
    const auto* backward = event.as<events::Backward>();
    for (std::uint32_t n = 3 + random.below(6); n > 0; --n) operation(w, random, backward ? backward->ordinal : no_index);
    if (faults_.two && w.event() == faults_.event + 1 && rank_ == (faults_.rank + 1) % world_) w.multiply(w.whole(sum_), 0.25);
    if (w.event() != faults_.event) return;
    if (rank_ == faults_.rank) w.multiply(w.whole(sum_), 0.5);
    if (faults_.races) {
      const OnStream side(w, Stream::side);
      w.fill(w.whole(sum_), 0.0);
    }
  }
  bool suspended() const override { return false; }
  void resume(double, ProgramWriter&) override { FAIL() << "nothing was read"; }

  void observe(ProgramWriter& w) override {
    for (const auto& [name, buffer] : {std::pair("full", full_), std::pair("sum", sum_)})
      w.observe(w.view(name, {{w.whole(buffer).part(0, 50), 0, 0}, {w.whole(buffer).part(50, 31), 1, 0}}), Role::scratch, 1, true);
    w.observe(w.view("share", {{w.whole(share_), 0, std::uint64_t{rank_} * chunk}}), Role::scratch, 1, true);
  }

 private:
  Slice drawn(ProgramWriter& w, SplitMix64& random, BufferId buffer, std::uint64_t numel) const {
    const Slice all = w.whole(buffer);
    return all.part(random.below(static_cast<std::uint32_t>(all.numel - numel + 1)), numel);
  }
  BufferId any(SplitMix64& random) const { return std::array{full_, sum_, wide_}[random.below(3)]; }

  void operation(ProgramWriter& w, SplitMix64& random, std::uint32_t backward) const {
    const std::uint64_t numel = 1 + random.below(chunk * world_);
    if (mesh_.replicas > 1 && random.below(3) > 0) return in_mesh(w, random);
    switch (random.below(12)) {
      case 0:
      case 1:
      case 2:
        if (backward == no_index) return;
        w.deposit(w.whole(full_).part(0, 50), backward, 0, 0, 1.0 / (1 + random.below(3)), random.below(2) == 0);
        return w.deposit(w.whole(full_).part(50, 31), backward, 1, 0, 1.0, true);
      case 3: {
        const Slice to = drawn(w, random, any(random), std::min<std::uint64_t>(numel, chunk)), from = drawn(w, random, any(random), to.numel);
        return from.buffer == to.buffer ? void() : w.copy(to, from);
      }
      case 4: {
        const Slice to = drawn(w, random, any(random), std::min<std::uint64_t>(numel, chunk)), from = drawn(w, random, any(random), to.numel);
        return from.buffer == to.buffer ? void() : w.accumulate(to, from);
      }
      case 5: return w.divide(w.whole(any(random)), 2.0);
      case 6: return w.copy(w.whole(wide_), w.whole(full_).part(random.below(2), w.whole(wide_).numel));
      case 7:
        return collective(w, {.kind = CollectiveKind::all_reduce, .op = random.below(2) == 0 ? ReduceOp::sum : ReduceOp::avg, .input = w.whole(full_), .output = w.whole(sum_)});
      case 8: return collective(w, {.kind = CollectiveKind::reduce_scatter, .input = w.whole(wide_), .output = w.whole(share_)});
      case 9: return in_place(w, random);
      case 10:
        if (mesh_.replicas == 1 && random.below(2) == 0) return gather_in_place(w, random, rank_, world_, 0);
        return collective(w, {.kind = CollectiveKind::all_gather, .input = w.whole(share_), .output = w.whole(wide_)});
      default: return rarely(w, random);
    }
  }

  void rarely(ProgramWriter& w, SplitMix64& random) const {
    const std::uint32_t root = random.below(world_), kind = random.below(6);
    if (kind == 0) return collective(w, {.kind = CollectiveKind::reduce, .root = root, .input = w.whole(full_), .output = w.whole(sum_)});
    if (kind == 1) return collective(w, {.kind = CollectiveKind::broadcast, .root = root, .input = w.whole(sum_), .output = w.whole(sum_)});
    if (kind == 2 && faults_.places_apart) return w.accumulate(w.whole(share_), drawn(w, random, full_, chunk));
    if (kind == 3 && faults_.places_apart) return w.accumulate(drawn(w, random, sum_, chunk), w.whole(share_));
  }

  // Where the rank's own share lies; read there; and the buffer is done with, or not.
  void in_place(ProgramWriter& w, SplitMix64& random) const {
    const Slice own = w.whole(wide_).part(std::uint64_t{rank_} * chunk, chunk);
    collective(w, {.kind = CollectiveKind::reduce_scatter, .op = ReduceOp::avg, .input = w.whole(wide_), .output = own});
    if (random.below(2) == 0) w.copy(w.whole(share_), own);
    else w.accumulate(w.whole(share_).part(1, chunk - 1), own.part(0, chunk - 1));
    if (random.below(8) != 0) w.fill(w.whole(wide_), 0.0);
  }

  // Memory of its own, in which nothing is touched before but the rank's share.
  void gather_in_place(ProgramWriter& w, SplitMix64& random, std::uint32_t place, std::uint32_t places, std::uint32_t group) const {
    w.allocate(gathered_);
    const Slice own = w.whole(gathered_).part(std::uint64_t{place} * chunk, chunk);
    w.copy(own.part(0, 2), w.whole(share_).part(0, 2));
    w.copy(own.part(2, chunk - 2), w.whole(share_).part(2, chunk - 2));
    if (random.below(32) == 0) w.fill(w.whole(gathered_).part(0, 1), 0.0);  // the first rank's share: nobody goes with another
    const std::uint32_t filled = w.record();
    w.set_stream(Stream::communication);  // where it waits for others while the host goes on
    w.wait(filled);
    collective(w, {.kind = CollectiveKind::all_gather, .group = group, .input = own, .output = w.whole(gathered_).part(0, std::uint64_t{places} * chunk)});
    const std::uint32_t done = w.record();
    w.set_stream(Stream::compute);
    if (random.below(2) == 0)  // after which a rank may go on by itself, before it has gathered
      collective(w, {.kind = CollectiveKind::reduce_scatter, .group = group, .input = w.whole(wide_).part(0, std::uint64_t{places} * chunk), .output = w.whole(share_)});
    w.wait(done);
    w.accumulate(w.whole(sum_).part(0, chunk), w.whole(gathered_).part(std::uint64_t{places - 1} * chunk, chunk));
    w.release(gathered_);
  }

  void in_mesh(ProgramWriter& w, SplitMix64& random) const {
    const std::uint32_t place = rank_ % mesh_.shards;
    const Slice wide = w.whole(wide_).part(0, std::uint64_t{mesh_.shards} * chunk);
    switch (random.below(8)) {
      case 0:
      case 1: return collective(w, {.kind = CollectiveKind::reduce_scatter, .group = shard_group_, .input = wide, .output = w.whole(share_)});
      case 2:
      case 3: return collective(w, {.kind = CollectiveKind::all_reduce, .op = ReduceOp::avg, .group = replicate_group_, .input = w.whole(share_), .output = w.whole(share_)});
      case 4: return gather_in_place(w, random, place, mesh_.shards, shard_group_);
      case 5: return collective(w, {.kind = CollectiveKind::all_reduce, .group = shard_group_, .input = w.whole(full_), .output = w.whole(sum_)});
      case 6: return w.copy(wide, w.whole(full_).part(random.below(2), wide.numel));
      default:
        if (random.below(8) > 0) return collective(w, {.kind = CollectiveKind::all_gather, .group = shard_group_, .input = w.whole(share_), .output = wide});
        return collective(w, {.kind = CollectiveKind::all_reduce, .group = replicate_group_, .input = w.whole(full_), .output = w.whole(sum_)});  // each has its own
    }
  }

  static void collective(ProgramWriter& w, CollectiveCall call) { w.collective(call); }

  std::uint32_t rank_, world_;
  std::uint64_t seed_;
  Faults faults_;
  Mesh mesh_;
  const Timeline* timeline_;
  std::uint32_t shard_group_ = 0, replicate_group_ = 0;
  BufferId full_ = 0, sum_ = 0, wide_ = 0, share_ = 0, gathered_ = 0;
};

Scenario of_world(std::uint32_t world, std::uint32_t micro_batches) {
  return one_long_window({{{"name", "a"}, {"numel", 50}}, {{"name", "b"}, {"numel", 31}}}, 0, world, micro_batches, false);
}

EngineFactory drawn_by(std::uint64_t seed, const Faults& faults = {}, const Mesh& mesh = {}) {
  return [=](const EngineContext& c) { return std::make_unique<Drawn>(c, seed, faults, mesh); };
}

TEST(ranks_of_a_class, show_what_they_show_where_each_is_run) {
  std::uint32_t once = 0, some = 0, each = 0;
  for (std::uint64_t seed = 0; seed < (sanitized ? 100 : 600); ++seed) {
    const auto world = static_cast<std::uint32_t>(2 + seed % 11);
    Both both;
    run_both(of_world(world, 4), both, drawn_by(seed));
    if (HasFailure()) FAIL() << "seed " << seed;
    EXPECT_EQ(both.of_all.ranks_run, world);
    const std::uint32_t run = both.of_brief.ranks_run;
    ++(run == 1 ? once : run < world ? some : each);
  }
  EXPECT_GT(once, sanitized ? 5u : 40u);
  EXPECT_GT(some + each, sanitized ? 10u : 60u);
}

// As long as shares are used where they lie, and no buffer is one rank's, nobody leaves.
TEST(ranks_of_a_class, that_use_their_shares_in_place_stay_together) {
  for (const int stage : {0, 3}) {
    Both both;
    run_both(one_long_window({{{"name", "a"}, {"numel", 64}}, {{"name", "b"}, {"numel", 32}}}, stage, 8, 8, false), both);
    EXPECT_EQ(both.of_brief.ranks_run, 1u) << "stage " << stage;
  }
}

// A rank calls in a group of its own what the leader of its class calls in its. What it would take in of its own there parts them.
TEST(ranks_of_a_class, in_several_groups_of_a_mesh_show_what_they_show_where_each_is_run) {
  std::uint32_t as_many_as_replicas = 0, fewer_than_ranks = 0;
  for (std::uint64_t seed = 0; seed < (sanitized ? 150 : 800); ++seed) {
    const Mesh mesh{static_cast<std::uint32_t>(2 + seed % 3), static_cast<std::uint32_t>(1 + seed / 3 % 3)};
    const std::uint32_t world = mesh.replicas * mesh.shards;
    const bool deviates = seed % 3 == 0;
    const Faults faults{
        .rank = deviates ? static_cast<std::uint32_t>(seed % world) : no_index, .event = deviates ? static_cast<std::uint32_t>(1 + seed / 3 % 4) : no_index, .two = deviates};
    Both both;
    run_both(of_mesh(mesh, of_world(world, 4)), both, drawn_by(seed, faults, mesh));
    if (HasFailure()) FAIL() << "seed " << seed;
    as_many_as_replicas += mesh.shards > 1 && both.of_brief.ranks_run <= mesh.replicas;
    fewer_than_ranks += both.of_brief.ranks_run < world;
  }
  EXPECT_GT(as_many_as_replicas, sanitized ? 10u : 60u);
  EXPECT_GT(fewer_than_ranks, as_many_as_replicas);
}

// What is gathered for a forward lies where it is gathered, on each rank elsewhere.
TEST(ranks_of_a_class, of_fully_shard_are_one_and_of_a_mesh_one_for_each_replica) {
  const auto run_of = [](const char* config, const Mesh& mesh) {
    const nlohmann::json document = {{"name", "s"},
                                     {"world_size", 8},
                                     {"parameters", {{{"name", "a"}, {"numel", 64}}, {{"name", "b"}, {"numel", 32}}}},
                                     {"model_dtype", "fp32"},
                                     {"engine", {{"framework", "fsdp2"}, {"as_of", "2.13.0"}, {"config", json::parse(config)}, {"optimizer", {{"type", "SGD"}, {"lr", 1.0}}}}},
                                     {"script", json::parse(R"([{"repeat": {"times": 3, "of": [{"backward": {"micro_batches": 2}}, {"step": {}}, {"zero_grad": "optimizer"}]}}])")},
                                     {"groups", {{"replicate", {{0, 4}, {1, 5}, {2, 6}, {3, 7}}}, {"shard", {{0, 1, 2, 3}, {4, 5, 6, 7}}}}}};
    Scenario scenario = read_scenario(document.dump(), ".").value();
    if (mesh.replicas == 1) scenario.groups.clear();
    Both both;
    run_both(scenario, both);
    return both.of_brief.ranks_run;
  };
  EXPECT_EQ(run_of("{}", {}), 1u);
  EXPECT_EQ(run_of(R"({"mesh": ["replicate", "shard"]})", {2, 4}), 2u);
}

// One rank of a stage goes ahead of the other, which waits for what a rank of the next stage sends; that one is of a class whose leader waits for the first.
TEST(ranks_of_a_class, part_where_some_may_receive_and_others_have_to_wait) {
  const json document = {
      {"name", "s"},
      {"world_size", 4},
      {"parameters", {{{"name", "a"}, {"numel", 12}}, {{"name", "b"}, {"numel", 3}, {"pipeline_stage", 1}}}},
      {"model_dtype", "fp32"},
      {"engine", {{"framework", "deepspeed"}, {"as_of", "head"}, {"config", json::object()}, {"optimizer", {{"type", "SGD"}, {"lr", 1.0}}}, {"pipeline_stages", 2}}},
      {"script", json::parse(R"([{"backward": {"ranks": [0], "uses": ["a"]}}, {"set_boundary": false}, {"backward": {"uses": ["b"]}}, {"backward": {"uses": ["b"]}}])")}};
  Both both;
  run_both(read_scenario(document.dump(), ".").value(), both);
}

// Padding is the last ranks'.
TEST(ranks_of_a_class, that_have_other_shares_are_run_by_themselves) {
  Both both;
  run_both(one_long_window({{{"name", "a"}, {"numel", 50}}, {{"name", "b"}, {"numel", 31}}}, 3, 8, 8, true), both);
  EXPECT_GT(both.of_brief.ranks_run, 1u);
  EXPECT_LT(both.of_brief.ranks_run, 8u);
}

TEST(a_rank, that_does_something_else_leaves_its_class_and_the_others_stay) {
  std::uint32_t together = 0;
  for (const std::uint32_t rank : {0u, 3u, 7u})
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      Both both, without;
      run_both(of_world(8, 5), without, drawn_by(seed, {.places_apart = false}));
      run_both(of_world(8, 5), both, drawn_by(seed, {.rank = rank, .event = 4, .places_apart = false}));
      if (without.of_brief.ranks_run != 1) continue;
      ++together;
      EXPECT_GT(both.of_brief.ranks_run, 1u) << "rank " << rank << ", seed " << seed;
      EXPECT_LT(both.of_brief.ranks_run, 5u) << "rank " << rank << ", seed " << seed;  // what came after it may part some of the others
    }
  EXPECT_GT(together, 0u);
}

TEST(a_race, of_a_class_is_told_of_each_of_its_ranks) {
  const Scenario scenario = of_world(4, 4);
  const Timeline timeline = make_timeline(scenario).value();
  const EngineFactory racing = drawn_by(5, {.event = 3, .races = true});
  RunOptions options;
  options.linear = options.weights = options.once = options.check_streams = true;
  options.schedule.policy = Schedule::Policy::in_order;  // so that what the ranks hold is the same
  InWords all;
  InWordsOnce brief;
  make_producer(scenario, timeline, {.engines = racing})->run(NoGradients(), options, all);
  const RunSummary summary = make_producer(scenario, timeline, {.engines = racing})->run(NoGradients(), options, brief);
  EXPECT_EQ(summary.ranks_run, 4u);
  EXPECT_EQ(all.lines, brief.lines);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    std::size_t races = 0;
    for (const std::string& line : brief.lines[{rank, 3}]) races += line.starts_with("race in sum");
    EXPECT_GT(races, 0u) << "rank " << rank;
  }
}

class classes_of_drawn_scripts : public ::testing::TestWithParam<std::string> {};

TEST_P(classes_of_drawn_scripts, show_what_they_show_where_each_rank_is_run) {
  const Framework* framework = framework_named(GetParam());
  ASSERT_NE(framework, nullptr);
  search::Profile profile;
  for (const Variant& variant : framework->search_space()->variants()) profile.variants.push_back(&variant);
  std::uint32_t compared = 0, together = 0;
  for (std::uint64_t number = 0; number < (sanitized ? 40 : 150); ++number) {
    const Scenario scenario = search::draw(profile, 41, number);
    Both both;
    run_both(scenario, both);
    if (HasFailure()) FAIL() << GetParam() << ", case " << number << ": " << to_json(scenario).dump();
    ++compared;
    together += both.of_brief.ranks_run < both.of_all.ranks_run;
  }
  EXPECT_GT(together, compared / 20) << "of " << compared;
}

INSTANTIATE_TEST_SUITE_P(by_framework, classes_of_drawn_scripts, ::testing::Values("deepspeed", "ddp", "fsdp1", "fsdp2", "megatron"), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gradledger::testing
