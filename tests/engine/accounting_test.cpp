// What the engines hold and send: counted by a run, worked out from sizes by hand.
#include <gtest/gtest.h>

#include <numeric>

#include "ref/facts.h"
#include "ref/probes.h"
#include "sim/accounting.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "tests/support/no_gradients.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

Accounting dry_run(const Scenario& scenario, std::uint64_t seed = 0) {
  EXPECT_FALSE(admission_error(scenario)) << admission_error(scenario)->text();
  const auto timeline = make_timeline(scenario);
  HostExecutor producer(scenario, *timeline);
  AccountingSink sink(scenario, *timeline);
  RunOptions options{.observe_events = false, .linear = true, .dry = true};
  options.schedule.seed = seed;
  producer.run(NoGradients(), options, sink);
  return sink.take();
}

// A world of 2, bf16, three parameters of which rank 0 owns the first and rank 1 the others.
constexpr std::uint64_t elements = 128, halves = 64, e = 2, full = elements * e, own = halves * e;
constexpr std::uint32_t backwards = 3;

Scenario sized(std::uint32_t stage, bool contiguous, std::uint64_t bucket_elements = 1000) {
  Scenario s = base_scenario(2, {64, 32, 32}, Dtype::bfloat16);
  deepspeed_config(s).zero.stage = stage;
  deepspeed_config(s).zero.contiguous_gradients = contiguous;
  deepspeed_config(s).zero.reduce_bucket_size = bucket_elements;
  s.script = {repeat(2, with_boundary_calls(backwards))};
  return s;
}

struct Held {
  std::uint64_t accumulate, boundary, peak;  // gradient memory of the device: after a backward of each kind, and the most in all backwards
  bool operator==(const Held&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Held& h) { return out << h.accumulate << ", " << h.boundary << ", peak " << h.peak; }

// In the second window, on the rank that holds most; host: of the host's memory.
Held held(const Scenario& scenario, MemorySpace space = MemorySpace::device, std::size_t kind = gradient_memory) {
  const Accounting accounting = dry_run(scenario);
  EXPECT_FALSE(accounting.stopped) << *accounting.stopped;
  Held most{};
  for (const RankAccount& rank : accounting.ranks) {
    const auto of = [&](Phase phase) { return rank.windows.at(1).of(phase).space[static_cast<std::size_t>(space)]; };
    most.accumulate = std::max(most.accumulate, of(Phase::accumulate).resident[kind]);
    most.boundary = std::max(most.boundary, of(Phase::boundary).resident[kind]);
    most.peak = std::max({most.peak, of(Phase::accumulate).peak[kind], of(Phase::boundary).peak[kind]});
  }
  return most;
}

CollectiveAccount sent(const Scenario& scenario, Purpose purpose = Purpose::gradient) { return dry_run(scenario).ranks[1].windows[1].total(purpose); }

TEST(memory, of_stage_0_is_the_gradient_and_its_flat_copy) {
  EXPECT_EQ(held(sized(0, true)), (Held{full, full, full + full}));
  Scenario s = sized(0, true);
  deepspeed_config(s).communication_data_type = Dtype::float32;
  EXPECT_EQ(held(s), (Held{full, full, full + full + 4 * elements}));
}

TEST(memory, of_bf16_optimizer_is_an_fp32_buffer_for_all_parameters_beside_the_gradient) {
  Scenario s = sized(1, true);
  deepspeed_config(s).grad_accum_dtype = Dtype::float32;
  s.parameters[2].numel = 31;  // padded to 128 again
  const std::uint64_t padded = 4 * elements, gradient = full - e;
  EXPECT_EQ(held(s), (Held{padded + gradient, padded + gradient, padded + gradient + padded + padded / 2}));
  deepspeed_config(s).communication_data_type = Dtype::float32;
  EXPECT_EQ(held(s).peak, padded + gradient + padded);
  EXPECT_EQ(dry_run(s).ranks[1].windows[1].of(Phase::step).space[0].resident[gradient_memory], padded);
}

TEST(memory, of_stage_1_is_the_whole_gradient_until_the_boundary) {
  EXPECT_EQ(held(sized(1, false)), (Held{full, own, full + full}));
  EXPECT_EQ(held(sized(1, false, 64)), (Held{full, own, full + full / 2})) << "two buckets";
  Scenario s = sized(1, false);
  deepspeed_config(s).communication_data_type = Dtype::float32;
  EXPECT_EQ(held(s).peak, full + full + 4 * elements) << "the flat copy and its cast";
}

TEST(memory, of_stage_1_with_contiguous_gradients_has_the_bucket_from_the_first_hook_on) {
  for (std::uint64_t bucket : {128u, 1000u}) EXPECT_EQ(held(sized(1, true, bucket)), (Held{full + bucket * e, own, full + bucket * e}));
  // Two buckets, pushed in the order of the model: the first holds what rank 0 owns, so that what it keeps fits where the gradients were.
  EXPECT_EQ(held(sized(1, true, 64)), (Held{full + 64 * e, own, full + 64 * e}));
  // Buckets of 64, 32 and 32 elements, of which rank 0 owns 32 in the first and 32 in the second: what it keeps is larger than its first bucket.
  Scenario s = sized(1, true, 40);
  s.parameters[0].numel = 32;
  s.parameters[1].numel = 32;
  s.parameters[2].numel = 32;
  s.parameters.push_back({"w3", 32, std::nullopt});
  EXPECT_EQ(held(s), (Held{full + 40 * e, own, full + 40 * e + own - 32 * e}));
}

TEST(memory, of_stage_1_with_overlap_has_two_buckets) {
  Scenario s = sized(1, true, 1000);
  deepspeed_config(s).zero.overlap_comm = true;
  EXPECT_EQ(held(s), (Held{full + 2 * 1000 * e, own, full + 2 * 1000 * e}));
}

TEST(memory, of_stage_2_is_what_the_rank_owns_and_in_a_reduction_the_gradient_and_its_flat_copy) {
  EXPECT_EQ(held(sized(2, false)), (Held{own, own, own + full + full}));
  // The push that does not fit any more reduces the bucket before, while all gradients are still referenced.
  EXPECT_EQ(held(sized(2, false, 64)), (Held{own, own, own + full + full / 2}));
  Scenario once = sized(2, false);
  once.script = {repeat(2, with_boundary_calls(1))};
  EXPECT_EQ(held(once).peak, full + full) << "nothing is accumulated yet";
}

// A host frees the flat copy before it allocates what is kept.
TEST(memory, of_stage_2_with_contiguous_gradients_is_bucket_flat_copy_and_what_is_kept) {
  constexpr std::uint64_t bucket = 1000 * e;
  EXPECT_EQ(held(sized(2, true)), (Held{own, own, own + bucket + std::max(full, own)}));
}

TEST(memory, of_stage_3_is_its_partitions_and_in_a_reduction_the_gradient_and_the_interleaved_copy) {
  EXPECT_EQ(held(sized(3, false)), (Held{own, own, own + full + full}));
  constexpr std::uint64_t bucket = 1000 * e;
  EXPECT_EQ(held(sized(3, true)), (Held{own + bucket, own + bucket, own + bucket + full})) << "pushing frees the gradient";
  Scenario s = sized(3, false);
  deepspeed_config(s).grad_accum_dtype = Dtype::float32;
  EXPECT_EQ(held(s), (Held{2 * own, 2 * own, 2 * own + full + full + 2 * own})) << "partitions in fp32";
  s = sized(3, false);
  s.parameters[2].numel = 31;  // padded to a multiple of the world
  EXPECT_EQ(held(s), (Held{own, own, own + (full - e) + full}));
}

TEST(memory, of_a_coalesced_block_is_the_whole_gradient_until_its_flush) {
  const auto coalesced = [](std::uint32_t stage, bool contiguous) {
    Scenario s = sized(stage, contiguous);
    ScriptItem block = event(ScriptKind::coalesce);
    block.items = {backward(backwards)};
    s.script = {repeat(2, {block, step()})};
    return s;
  };
  for (std::uint32_t stage : {1u, 2u}) EXPECT_EQ(held(coalesced(stage, false)), (Held{full, own, full + full})) << stage;
  for (std::uint32_t stage : {1u, 2u}) EXPECT_EQ(held(coalesced(stage, true)), (Held{full, own, full + 1000 * e})) << "pushing frees the gradients" << stage;
  EXPECT_EQ(held(coalesced(3, false)), (Held{own + full, own, own + full + full}));
  for (std::uint32_t stage : {1u, 2u, 3u}) EXPECT_EQ(sent(coalesced(stage, false)), (CollectiveAccount{1, elements, full})) << stage;
}

TEST(memory, of_stages_1_and_2_with_offload_leaves_the_device_at_the_end_of_a_reduction) {
  constexpr std::uint64_t bucket = 1000 * e;
  for (std::uint32_t stage : {1u, 2u}) {
    Scenario s = sized(stage, true);
    deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
    const Held device = held(s), master = held(s, MemorySpace::host, static_cast<std::size_t>(BufferPurpose::master_gradients));
    EXPECT_EQ(device.accumulate, stage == 1 ? full + bucket : 0);
    EXPECT_EQ(device.boundary, 0u);
    EXPECT_EQ(device.peak, stage == 1 ? full + bucket : bucket + full);
    EXPECT_EQ(master, (Held{4 * halves, 4 * halves, 4 * halves}));
    const std::uint64_t accumulators = stage == 1 ? 0 : own;  // stage 1 reduces once in a window, and needs none
    EXPECT_EQ(held(s, MemorySpace::host), (Held{accumulators, accumulators, accumulators}));
  }
}

TEST(memory, of_stage_3_with_offload_is_on_the_host) {
  Scenario s = sized(3, false);
  deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
  EXPECT_EQ(held(s, MemorySpace::host), (Held{own, own, own}));
  EXPECT_EQ(held(s, MemorySpace::host, static_cast<std::size_t>(BufferPurpose::master_gradients)), (Held{4 * halves, 4 * halves, 4 * halves}));
  EXPECT_EQ(held(s), (Held{0, 0, full + full + halves})) << "the largest partition is brought to the device to be added to";
}

// A rank's partitions are half of everything; the largest parameter is the largest copy.
TEST(memory, of_offloaded_weights_is_on_the_host_and_one_copy_at_a_time_on_the_device) {
  constexpr auto weights = static_cast<std::size_t>(BufferPurpose::weights);
  std::uint64_t largest = 0;
  Scenario s = sized(3, true);
  for (const Parameter& p : s.parameters) largest = std::max<std::uint64_t>(largest, p.numel / 2 * size_of(s.model_dtype));
  EXPECT_EQ(held(s, MemorySpace::device, weights), (Held{own, own, own}));
  EXPECT_EQ(held(s, MemorySpace::host, weights), (Held{0, 0, 0}));
  const Held gradients = held(s);
  deepspeed_config(s).zero.offload_param = OffloadDevice::cpu;
  EXPECT_EQ(held(s, MemorySpace::device, weights), (Held{0, 0, largest}));
  EXPECT_EQ(held(s, MemorySpace::host, weights), (Held{own, own, own}));
  EXPECT_EQ(held(s), gradients) << "nothing of a gradient moves";
  deepspeed_config(s).zero.stage = 2;
  EXPECT_EQ(held(s, MemorySpace::host, weights), (Held{0, 0, 0})) << "below stage 3 the key has no effect";
}

// ---- collectives ------------------------------------------------------------------------------------------------------------------------

TEST(collectives, of_gradients_are_one_for_each_bucket_in_each_reduction) {
  for (std::uint64_t buckets : {1u, 2u}) {
    const std::uint64_t size = elements / buckets;
    for (bool contiguous : {false, true}) {
      EXPECT_EQ(sent(sized(1, contiguous, size)), (CollectiveAccount{buckets, elements, full})) << buckets;
      for (std::uint32_t stage : {2u, 3u})
        EXPECT_EQ(sent(sized(stage, contiguous, size)), (CollectiveAccount{buckets * backwards, elements * backwards, full * backwards})) << stage;
    }
  }
  EXPECT_EQ(sent(sized(0, true)), (CollectiveAccount{1, elements, full}));
  Scenario s = sized(3, true);
  s.parameters[2].numel = 31;
  EXPECT_EQ(sent(s).elements, elements * backwards) << "stage 3 pads each parameter to a multiple of the world";
  deepspeed_config(s).zero.stage = 2;
  EXPECT_EQ(sent(s).elements, (elements - 1) * backwards) << "stage 2 pads nothing";
  EXPECT_EQ(sent(sized(2, true), Purpose::parameter), (CollectiveAccount{1, halves, own})) << "each rank's own part";
}

// ---- the dry run ------------------------------------------------------------------------------------------------------------------------

TEST(dry_run, accounts_as_a_full_run_does_under_any_schedule) {
  std::size_t compared = 0;
  for (std::uint32_t stage = 0; stage <= 3; ++stage)
    for (bool offload : {false, true})
      for (bool contiguous : {false, true})
        for (bool overlap : {false, true})
          for (Dtype accumulation : {Dtype::bfloat16, Dtype::float32}) {
            Scenario s = sized(stage, contiguous, 50);
            deepspeed_config(s).zero.offload_optimizer = offload ? OffloadDevice::cpu : OffloadDevice::none;
            deepspeed_config(s).zero.overlap_comm = overlap;
            deepspeed_config(s).grad_accum_dtype = accumulation;
            s.engine.optimizer.type = OptimizerType::adam;
            s.parameters[1].used_by = *Predicate::parse("micro_batch > 0", "");
            if (admission_error(s)) continue;
            const auto timeline = make_timeline(s);
            HostExecutor producer(s, *timeline);
            AccountingSink sink(s, *timeline);
            RunOptions options{.linear = true};
            options.schedule.seed = 7;
            ASSERT_TRUE(producer.run(*ref::value_source(s, *timeline, GradientKind::normal, 0), options, sink).completed);
            const Accounting full_run = sink.take();
            EXPECT_EQ(full_run, dry_run(s, 11)) << stage << offload << contiguous << overlap;
            EXPECT_GT(full_run.ranks[0].windows[1].of(Phase::boundary).space[0].peak[gradient_memory], 0u);
            ++compared;
          }
  EXPECT_GT(compared, 40u);
}

// A recorded program runs dry, and with values again.
TEST(dry_run, of_an_executor_leaves_its_full_runs_as_they_were) {
  const Scenario s = sized(2, true);
  const auto timeline = make_timeline(s);
  const auto source = ref::value_source(s, *timeline, GradientKind::normal, 0);
  HostExecutor producer(s, *timeline);
  ref::Tee nobody;
  RunOptions full{.linear = true}, dry{.linear = true, .dry = true};
  const RunSummary before = producer.run(*source, full, nobody);
  AccountingSink sink(s, *timeline);
  EXPECT_TRUE(producer.run(NoGradients(), dry, sink).completed);
  EXPECT_EQ(sink.take(), dry_run(s));
  EXPECT_EQ(producer.run(*source, full, nobody).trace_hash, before.trace_hash);
}

TEST(dry_run, needs_no_memory_for_the_elements) {
  Scenario s = base_scenario(4, {2'000'000'000, 2'000'000'000}, Dtype::bfloat16);
  s.script = {repeat(2, with_boundary_calls(2))};
  EXPECT_EQ(held(s).boundary, 8'000'000'000u);
}

TEST(accounting, names_the_lowest_rank_that_raised_whichever_came_first) {
  Scenario s = sized(2, true);
  s.script = {backward(), step(), boundary(false), backward(), boundary(true), step()};
  for (std::uint64_t seed = 0; seed < 16; ++seed) EXPECT_TRUE(dry_run(s, seed).stopped.value_or("").starts_with("rank 0, ")) << "seed " << seed;
}

TEST(accounting, says_where_a_rank_stopped_and_keeps_what_was_held_until_then) {
  Scenario s = sized(2, true);
  s.script = {backward(), step(), boundary(false), backward(), boundary(true), step()};  // a step without averaged gradients raises
  const Accounting accounting = dry_run(s);
  ASSERT_TRUE(accounting.stopped);
  EXPECT_NE(accounting.stopped->find("event 5: step: TypeError"), std::string::npos) << *accounting.stopped;
  EXPECT_EQ(accounting.ranks[0].windows[1].of(Phase::accumulate).space[0].resident[gradient_memory], own);
}

}  // namespace
}  // namespace gradledger::testing
