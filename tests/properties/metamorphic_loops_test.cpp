// Engines whose loops own their windows: how a loop is written, cut and ordered must not show in what it applies. Each property is shown to fail by a
// planted fault.
#include "tests/properties/metamorphic.h"

#include <optional>
#include <regex>

#include "search/mutants/mutant.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::testing::metamorphic {
namespace loops {
namespace {

constexpr std::uint64_t seeds = 24;

std::vector<std::string_view> engines_of_loops() {
  std::vector<std::string_view> out;
  for (const Framework* framework : frameworks())
    if (framework->search_space() && framework != &default_framework())
      for (const Variant& variant : framework->search_space()->variants()) out.push_back(variant.name);
  return out;
}

// An engine with drawn options, in a plain loop. Nothing: the framework does not serve or document the two together, or sums are not exact.
struct Loop {
  std::uint32_t windows = 2, micro_batches = 4;
  bool defers = false;
};

std::optional<Scenario> loop_on(const Scenario& drawn, const Loop& loop) {
  Scenario s = drawn;
  search_space_of(s).write_loop({.windows = loop.windows, .micro_batches = loop.micro_batches, .defers = loop.defers}, s);
  search::unroll(s);
  if (admission_error(s) || !make_timeline(s).ok() || !exact(Case(s)) || !framework_of(s).use_of(s, *make_timeline(s)).misuses.empty()) return std::nullopt;
  return s;
}

// What a property compares: two loops, and the data of the second by that of the first.
struct Pair {
  Scenario one, other;
};

using Relate = std::function<std::optional<Pair>(const Scenario& drawn)>;
using Data = std::function<Element(const Case& one, const GradientSource& of_one, search::Draws& draws)>;

struct Relation {
  Relate relate;
  Data data;                                                  // of the other
  std::function<Place(const Place&, const Pair&)> move = {};  // where the other has what the one has
  double factor = 1;                                          // of what the other applies
};

Applied run(const Case& c, const GradientSource& source, const EngineFactory& engines) {
  HostExecutor executor(c.scenario, c.timeline, CollectiveArithmetic::nccl_ring, engines);
  AppliedSink sink(c);
  RunOptions options;
  options.linear = true;
  options.observe_events = false;
  options.schedule = in_order();
  executor.run(source, options, sink);
  return sink.taken();
}

// The first cases of the engine's drawn options that the relation serves.
Outcome outcome_of(const Relation& relation, std::string_view engine, std::uint64_t seed, const EngineFactory& engines) {
  search::Profile profile = as_documented();
  profile.variants = {search::variant_named(engine, "").value()};
  search::Draws draws = draws_of(seed);
  for (std::uint64_t number = 0; number < 400; ++number) {
    Scenario drawn = search::draw(profile, seed, number);
    for (Parameter& p : drawn.parameters) p.used_by.reset();
    const auto pair = relation.relate(drawn);
    if (!pair) continue;
    Outcome out{pair->other, 0, {}};
    const Case one(pair->one), other(pair->other);
    const ref::FingerprintSource of_one(one.timeline, one.range, seed);
    Applied expected = run(one, of_one, engines);
    Applied moved{{}, expected.stopped};
    for (const auto& [place, values] : expected.values)
      for (const double value : values) moved.values[relation.move ? relation.move(place, *pair) : place].insert(value * relation.factor);
    compare(moved, run(other, ElementSource(relation.data(one, of_one, draws)), engines), out);
    return out;
  }
  throw ContractViolation("some drawn case fits");
}

// ---- which loops --------------------------------------------------------------------------------------------------------------------

std::optional<Pair> twice(std::optional<Scenario> s) {
  if (!s) return std::nullopt;
  return Pair{*s, *s};
}

std::optional<Pair> both_of(std::optional<Scenario> one, std::optional<Scenario> other) {
  if (!one || !other) return std::nullopt;
  return Pair{std::move(*one), std::move(*other)};
}

std::optional<Pair> reduced_loop(const Scenario& drawn) { return twice(loop_on(drawn, {})); }
std::optional<Pair> deferring_loop(const Scenario& drawn) { return twice(loop_on(drawn, {.defers = true})); }
std::optional<Pair> reduced_and_deferring(const Scenario& drawn) { return both_of(loop_on(drawn, {}), loop_on(drawn, {.defers = true})); }
std::optional<Pair> four_and_one(const Scenario& drawn) { return both_of(loop_on(drawn, {}), loop_on(drawn, {.micro_batches = 1})); }

// Ranks of one role: no stages, and no experts of their own.
std::optional<Pair> ranks_alike(const Scenario& drawn) {
  const bool roles =
      drawn.layout || drawn.engine.pipeline_stages > 1 || std::any_of(drawn.parameters.begin(), drawn.parameters.end(), [](const Parameter& p) { return p.expert.has_value(); });
  return roles ? std::nullopt : reduced_loop(drawn);
}

std::optional<Pair> parameters_reversed(const Scenario& drawn) {
  auto one = loop_on(drawn, {});
  if (!one || one->parameters.size() < 2 || !one->engine.param_groups.empty()) return std::nullopt;
  Scenario other = *one;
  std::reverse(other.parameters.begin(), other.parameters.end());
  for (Parameter& p : other.parameters) p.name = "renamed_" + p.name;
  if (admission_error(other) || !make_timeline(other).ok() || !exact(Case(other))) return std::nullopt;
  return Pair{std::move(*one), std::move(other)};
}

// Where the framework has buckets.
std::optional<Pair> buckets_small_and_large(const Scenario& drawn) {
  Scenario small = drawn, large = drawn;
  if (!tuning_of(small).limit_buckets(small, 1) || !tuning_of(large).limit_buckets(large, 4096)) return std::nullopt;
  return both_of(loop_on(small, {}), loop_on(large, {}));
}

// ---- which data ---------------------------------------------------------------------------------------------------------------------

Element unchanged(const Case&, const GradientSource& of_one, search::Draws&) {
  return [&of_one](std::uint32_t b, std::uint32_t r, std::uint32_t p, std::uint32_t element) { return one_of(of_one, b, r, p, element); };
}

Element of_other_micro_batches(const Case& one, const GradientSource& of_one, search::Draws& draws) {
  return [&one, &of_one, order = reordered(4, draws)](std::uint32_t b, std::uint32_t r, std::uint32_t p, std::uint32_t element) {
    const std::vector<std::uint32_t> window = one.backwards_of(one.timeline.backwards[b].step);
    return one_of(of_one, window[order[one.timeline.backwards[b].micro_batch[r]]], r, p, element);
  };
}

Element of_other_ranks(const Case& one, const GradientSource& of_one, search::Draws& draws) {
  return [&of_one, order = reordered(one.scenario.world_size, draws)](std::uint32_t b, std::uint32_t r, std::uint32_t p, std::uint32_t element) {
    return one_of(of_one, b, order[r], p, element);
  };
}

Element sums_of_windows(const Case& one, const GradientSource& of_one, search::Draws&) {
  return [&one, &of_one](std::uint32_t b, std::uint32_t r, std::uint32_t p, std::uint32_t element) {
    double sum = 0;
    for (const std::uint32_t each : one.backwards_of(b)) sum += one_of(of_one, each, r, p, element);
    return sum;
  };
}

Element four_of_each(const Case&, const GradientSource& of_one, search::Draws&) {
  return [&of_one](std::uint32_t b, std::uint32_t r, std::uint32_t p, std::uint32_t element) { return 4 * one_of(of_one, b, r, p, element); };
}

Element of_mirrored_parameters(const Case& one, const GradientSource& of_one, search::Draws&) {
  const auto last = static_cast<std::uint32_t>(one.scenario.parameters.size() - 1);
  return [&of_one, last](std::uint32_t b, std::uint32_t r, std::uint32_t p, std::uint32_t element) { return one_of(of_one, b, r, last - p, element); };
}

Place mirrored(const Place& place, const Pair& pair) {
  const auto last = static_cast<std::uint32_t>(pair.one.parameters.size() - 1);
  return {std::get<0>(place), last - std::get<1>(place), std::get<2>(place)};
}

// ---- properties ---------------------------------------------------------------------------------------------------------------------

const Relation reordered_micro_batches{reduced_loop, of_other_micro_batches};
const Relation reordered_in_no_sync{deferring_loop, of_other_micro_batches};
const Relation reordered_ranks{ranks_alike, of_other_ranks};
const Relation deferred{reduced_and_deferring, unchanged};      // what is left unreduced until the last micro-batch comes to what is reduced at each
const Relation one_micro_batch{four_and_one, sums_of_windows};  // a window of four is one of a single micro-batch that has the sum
const Relation four_times{reduced_loop, four_of_each, {}, 4};
const Relation reversed_parameters{parameters_reversed, of_mirrored_parameters, mirrored};
const Relation smaller_buckets{buckets_small_and_large, unchanged};

// ---- they hold ----------------------------------------------------------------------------------------------------------------------

class of_a_loop : public ::testing::TestWithParam<std::string_view> {
 protected:
  void expect_holds(const Relation& relation) const {
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      const Outcome outcome = outcome_of(relation, GetParam(), seed, {});
      ASSERT_TRUE(outcome.difference.empty()) << outcome.difference << "\n" << serialise(outcome.scenario);
      ASSERT_GT(outcome.compared, 0u);
    }
  }
};

TEST_P(of_a_loop, micro_batches_in_another_order_apply_the_same) { expect_holds(reordered_micro_batches); }
TEST_P(of_a_loop, micro_batches_in_another_order_in_no_sync_apply_the_same) { expect_holds(reordered_in_no_sync); }
TEST_P(of_a_loop, ranks_that_change_their_data_apply_the_same) { expect_holds(reordered_ranks); }
TEST_P(of_a_loop, no_sync_applies_what_reducing_each_micro_batch_does) { expect_holds(deferred); }
TEST_P(of_a_loop, a_window_applies_what_one_micro_batch_of_its_sum_does) { expect_holds(one_micro_batch); }
TEST_P(of_a_loop, four_times_the_loss_applies_four_times_the_gradient) { expect_holds(four_times); }
TEST_P(of_a_loop, parameters_renamed_and_in_another_order_apply_the_same) { expect_holds(reversed_parameters); }

INSTANTIATE_TEST_SUITE_P(metamorphic, of_a_loop, ::testing::ValuesIn(engines_of_loops()),
                         [](const auto& info) { return std::regex_replace(std::string(info.param), std::regex("-"), "_"); });

class loops_with_buckets : public of_a_loop {};

TEST_P(loops_with_buckets, a_size_of_buckets_changes_nothing) { expect_holds(smaller_buckets); }

INSTANTIATE_TEST_SUITE_P(metamorphic, loops_with_buckets, ::testing::Values("ddp", "megatron", "megatron-distributed"),
                         [](const auto& info) { return std::regex_replace(std::string(info.param), std::regex("-"), "_"); });

// ---- and can fail -------------------------------------------------------------------------------------------------------------------

// One of the first cases shows the fault.
void expect_shown(const Relation& relation, std::string_view engine, const search::Fault& fault, std::string_view name) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed)
    if (!outcome_of(relation, engine, seed, search::with_fault(fault)).difference.empty()) return;
  ADD_FAILURE() << name << " in " << engine << " leaves the property as it is";
}

void expect_shown(const Relation& relation, std::initializer_list<std::string_view> engines, std::string_view mutant) {
  for (const std::string_view engine : engines) expect_shown(relation, engine, search::mutant_named(mutant, "").value()->fault, mutant);
}

TEST(metamorphic_loops, another_order_of_micro_batches_shows_where_the_last_of_them_is_lost) {
  expect_shown(reordered_micro_batches, {"ddp", "fsdp1", "fsdp2", "megatron"}, "micro-batch-lost");
}

TEST(metamorphic_loops, another_order_in_no_sync_shows_where_its_sum_is_dropped) {
  expect_shown(reordered_in_no_sync, {"ddp", "fsdp1", "fsdp2", "megatron"}, "no-sync-sum-dropped");
}

TEST(metamorphic_loops, ranks_that_change_their_data_show_where_one_of_them_loses_a_micro_batch) {
  expect_shown(reordered_ranks, {"ddp", "fsdp1", "fsdp2", "megatron-distributed"}, "micro-batch-lost-on-a-rank");
}

TEST(metamorphic_loops, no_sync_shows_where_the_engine_does_not_hear_of_its_end) { expect_shown(deferred, {"ddp", "fsdp1", "fsdp2"}, "no-sync-never-left"); }

TEST(metamorphic_loops, no_sync_shows_where_gradients_are_zeroed_behind_it) {
  const search::Fault zeroed{.tell = [](search::Told& told, const Event& event, const search::Moment&) {
    if (event.is<events::ExitNoSync>()) told.now.push_back({.body = events::EngineZeroGrad{}, .step = event.step});
  }};
  for (const char* engine : {"ddp", "megatron", "megatron-distributed"}) expect_shown(deferred, engine, zeroed, "zero_grad behind no_sync");
}

TEST(metamorphic_loops, a_window_shows_where_a_sum_is_overwritten) { expect_shown(one_micro_batch, {"ddp", "fsdp1", "fsdp2", "megatron"}, "sum-overwritten"); }

TEST(metamorphic_loops, parameters_in_another_order_show_where_the_first_to_be_ready_is_lost) {
  expect_shown(reversed_parameters, {"ddp", "fsdp1", "fsdp2", "megatron"}, "parameter-lost");
}

TEST(metamorphic_loops, a_size_of_buckets_shows_where_the_first_bucket_is_left_out) { expect_shown(smaller_buckets, {"ddp", "megatron"}, "bucket-left-out"); }

// What comes from no gradient is no common factor.
TEST(metamorphic_loops, four_times_the_loss_shows_where_a_constant_takes_the_place_of_a_gradient) {
  const search::Fault constant{.edit = [](search::Tape& tape, const search::Moment&) {
    for (std::size_t at = 0; at < tape.size(); ++at)
      if (tape[at].kind == OpKind::deposit && tape[at].index != no_index && tape[at].target.numel > 0)
        tape.insert(at + 1, search::Tape::like(tape[at], OpKind::fill, tape[at].target.part(0, 1), {}, 1.0));
  }};
  for (const char* engine : {"ddp", "fsdp1", "fsdp2", "megatron"}) expect_shown(four_times, engine, constant, "a constant");
}

}  // namespace
}  // namespace loops
}  // namespace gradledger::testing::metamorphic
