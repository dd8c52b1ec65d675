// Who is called what, and what comes before what: micro-batches of a window, ranks, gradients of a backward, operations of a schedule.
#include "tests/properties/metamorphic.h"

#include <numeric>

#include "sim/engine/engine.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/framework.h"

namespace gradledger::testing::metamorphic {
namespace {

// ---- micro-batches ----------------------------------------------------------------------------------------------------------------

bool has_an_order(const Case& c) { return exact(c) && c.timeline.micro_batches[0][0] > 1; }

// The nth backward of the unrolled script.
std::vector<ScriptItem*> backward_items(Scenario& s) {
  std::vector<ScriptItem*> out;
  for (ScriptItem& item : s.script)
    if (item.kind == ScriptKind::backward) out.push_back(&item);
  return out;
}

// Open defects: stages 1 and 2 with offload and stage 1 with overlap lose what a parameter has that the boundary backward leaves out, and
// stage 3 and offload add the last window's to a parameter that the first one leaves out (live-3, live-5, live-5b). There the first and
// the last micro-batch use everything and stay where they are.
bool keeps_the_ends(const Case& c) {
  const DeepSpeedConfig& config = deepspeed_config(c.scenario);
  return config.zero.stage == 3 || config.offloads_optimizer() || (config.zero.stage == 1 && config.zero.overlap_comm.value_or(false));
}

// What micro-batches use: all parameters, some, or some at the ends of a window too whatever is known to be lost there.
enum class Use { all, some, some_everywhere };

bool has_an_order_of_sparse_ones(const Case& c) { return has_an_order(c) && (!keeps_the_ends(c) || c.timeline.micro_batches[0][0] > 3); }

// By window, the backwards that may change places.
std::vector<std::vector<std::uint32_t>> movable(const Case& c, Use use) {
  std::vector<std::vector<std::uint32_t>> out;
  for (std::uint32_t w = 0; w < c.timeline.steps; ++w) {
    std::vector<std::uint32_t>& of_window = out.emplace_back(c.backwards_of(w));
    if (use == Use::some && keeps_the_ends(c)) of_window = {of_window.begin() + 1, of_window.end() - 1};
  }
  return out;
}

// Each of these leaves out some of the parameters, and is told apart by them.
void use_some(Scenario& s, const std::vector<std::vector<std::uint32_t>>& windows, search::Draws& draws) {
  const auto items = backward_items(s);
  for (const auto& of_window : windows)
    for (const std::uint32_t b : of_window) {
      for (const Parameter& p : s.parameters)
        if (p.has_gradient() && draws.one_in(2)) items[b]->uses.push_back(p.name);
      if (items[b]->uses.empty()) items[b]->uses.push_back(s.parameters[0].name);
    }
}

Outcome micro_batches_may_be_reordered(const search::Profile& profile, std::uint64_t seed, Use use) {
  Outcome out{drawn(profile, seed, use == Use::some ? has_an_order_of_sparse_ones : has_an_order), 0, {}};
  search::Draws draws = draws_of(seed);
  const auto windows = movable(Case(out.scenario), use);
  if (use != Use::all) use_some(out.scenario, windows, draws);
  const Case one(out.scenario);
  Scenario changed = one.scenario, before = one.scenario;
  const auto to = backward_items(changed), from = backward_items(before);
  std::vector<std::uint32_t> now(to.size());  // by backward: which one comes in its place
  std::iota(now.begin(), now.end(), 0u);
  for (const auto& of_window : windows) {
    const auto order = reordered(static_cast<std::uint32_t>(of_window.size()), draws);
    for (std::size_t i = 0; i < order.size(); ++i) now[of_window[i]] = of_window[order[i]];
  }
  for (std::size_t b = 0; b < now.size(); ++b) to[b]->uses = from[now[b]]->uses;
  const Case other(std::move(changed));
  const ref::FingerprintSource source(one.timeline, one.range, seed);
  const ElementSource moved([&](std::uint32_t b, std::uint32_t r, std::uint32_t p, std::uint32_t e) { return one_of(source, now[b], r, p, e); });
  compare(applied(one, source), applied(other, moved), out);
  const Rename back = [&](const Contribution& c) {
    const std::uint32_t at = other.backwards_of(c.step)[c.micro_batch];
    return one.timeline.contribution(now[at], c.rank);
  };
  compare(rows_of(books(one, Snapshots::applied)), rows_of(books(other, Snapshots::applied), back), out);
  return out;
}

Property reordered_micro_batches(Use use) {
  return [use](const search::Profile& profile, std::uint64_t seed) { return micro_batches_may_be_reordered(profile, seed, use); };
}

TEST(metamorphic_order, micro_batches_of_a_window_in_another_order_apply_the_same) { expect_holds(reordered_micro_batches(Use::all)); }
TEST(metamorphic_order, micro_batches_that_leave_out_parameters_in_another_order_apply_the_same) { expect_holds(reordered_micro_batches(Use::some)); }

TEST(metamorphic_order, micro_batches_in_another_order_show_where_offload_keeps_the_last_alone) {
  expect_fails(reordered_micro_batches(Use::all), as_documented("before #7981", {"zero2-offload"}));
}
TEST(metamorphic_order, micro_batches_in_another_order_show_where_a_boundary_leaks) {
  expect_fails(reordered_micro_batches(Use::all), as_documented("before #7985", {"bf16-optimizer"}));
}

TEST(metamorphic_order, micro_batches_in_another_order_show_where_the_last_of_them_leaves_out_what_offload_keeps) {
  expect_fails(reordered_micro_batches(Use::some_everywhere), as_documented("head", {"zero2-offload"}));
}

// ---- ranks ------------------------------------------------------------------------------------------------------------------------

bool has_peers(const Case& c) { return exact(c) && c.scenario.world_size > 1; }

// Ranks that leave out different parameters meet in the reductions of engines that pack all of them, and in no others. BF16_Optimizer raises
// on a rank that has left out all.
bool packs(const Scenario& s) { return deepspeed_config(s).zero.stage == 0 || (engine_name(s) == "BF16_Optimizer" && s.parameters.size() > 1); }

void leave_out(Scenario& s, std::uint32_t parameter, std::uint32_t rank) { s.parameters[parameter].used_by = Predicate::parse(fmt::format("rank != {}", rank), "").value(); }

Outcome ranks_may_be_renamed(const search::Profile& profile, std::uint64_t seed) {
  Outcome out{drawn(profile, seed, has_peers), 0, {}};
  search::Draws draws = draws_of(seed);
  const std::vector<std::uint32_t> now = reordered(out.scenario.world_size, draws);  // by rank: whose data it has
  Scenario changed = out.scenario;
  if (packs(changed)) {
    const std::uint32_t parameter = draws.below(static_cast<std::uint32_t>(changed.parameters.size())), rank = draws.below(changed.world_size);
    leave_out(changed, parameter, rank);
    leave_out(out.scenario, parameter, now[rank]);
  }
  const Case one(out.scenario), other(std::move(changed));
  const ref::FingerprintSource source(one.timeline, one.range, seed);
  const ElementSource moved([&](std::uint32_t b, std::uint32_t r, std::uint32_t p, std::uint32_t e) { return one_of(source, b, now[r], p, e); });
  compare(applied(one, source), applied(other, moved), out);
  const Rename back = [&](const Contribution& c) { return Contribution{c.step, now[c.rank], c.micro_batch}; };
  compare(rows_of(books(one, Snapshots::applied)), rows_of(books(other, Snapshots::applied), back), out);
  return out;
}

TEST(metamorphic_order, ranks_that_change_their_data_apply_the_same) { expect_holds(ranks_may_be_renamed); }

TEST(metamorphic_order, ranks_that_change_their_data_show_where_a_boundary_leaks) { expect_fails(ranks_may_be_renamed, as_documented("before #7985", {"bf16-optimizer"})); }

// ---- gradients of a backward ------------------------------------------------------------------------------------------------------

bool has_parameters(const Case& c) { return exact(c) && c.scenario.parameters.size() > 1; }

// As usual the last parameter comes first; now the first, or any. Ranks that differ in it meet in different reductions.
Outcome gradients_may_come_in_any_order(const search::Profile& profile, std::uint64_t seed, bool alike_on_all_ranks) {
  Outcome out{drawn(profile, seed, has_parameters), 0, {}};
  const Case one(out.scenario);
  search::Draws draws = draws_of(seed);
  Scenario changed = one.scenario;
  const auto count = static_cast<std::uint32_t>(changed.parameters.size());
  for (ScriptItem* item : backward_items(changed)) {
    std::vector<std::uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0u);
    for (std::uint32_t r = 0; r < changed.world_size; ++r) {
      if (draws.one_in(2) && (r == 0 || !alike_on_all_ranks)) order = shuffled(count, draws);
      for (const std::uint32_t p : order) item->order[r].push_back(changed.parameters[p].name);
    }
  }
  const Case other(std::move(changed));
  compare(books(one, Snapshots::all), books(other, Snapshots::all), out);
  const ref::FingerprintSource source(one.timeline, one.range, seed);
  compare(applied(one, source), applied(other, source), out);
  return out;
}

TEST(metamorphic_order, gradients_that_become_ready_in_another_order_weigh_the_same_in_every_buffer) {
  expect_holds([](const search::Profile& profile, std::uint64_t seed) { return gradients_may_come_in_any_order(profile, seed, true); });
}

TEST(metamorphic_order, gradients_that_become_ready_in_an_order_of_each_ranks_own_do_not) {
  expect_fails([](const search::Profile& profile, std::uint64_t seed) { return gradients_may_come_in_any_order(profile, seed, false); }, as_documented());
}

// ---- schedules --------------------------------------------------------------------------------------------------------------------

// Small buckets, many parameters: two buffers that are reduced and filled in turn.
Outcome schedules_change_no_weight(const search::Profile& profile, std::uint64_t seed) {
  search::Profile larger = profile;
  larger.parameters_max = 8;
  Outcome out{drawn(larger, seed, exact), 0, {}};
  if (deepspeed_config(out.scenario).zero.stage > 0) deepspeed_config(out.scenario).zero.reduce_bucket_size = 8;
  const Case c(out.scenario);
  const auto seeded = [](std::uint64_t of) {
    Schedule schedule;
    schedule.seed = of;
    return schedule;
  };
  compare(books(c, Snapshots::all), books(c, Snapshots::all, seeded(seed)), out);
  const ref::FingerprintSource source(c.timeline, c.range, seed);
  const Applied in_turn = applied(c, source);
  for (std::uint64_t i = 0; i < 4; ++i) compare(in_turn, applied(c, source, seeded(seed + i)), out);
  return out;
}

TEST(metamorphic_order, schedules_change_no_weight_in_any_buffer) { expect_holds(schedules_change_no_weight); }

TEST(metamorphic_order, schedules_change_weights_where_a_bucket_is_filled_while_it_is_reduced) {
  expect_fails(schedules_change_no_weight, as_documented("before #5606", {"zero1", "zero2"}));
}

// ---- a parameter that nobody uses -------------------------------------------------------------------------------------------------

Outcome an_unused_parameter_is_none_of_the_others_business(const search::Profile& profile, std::uint64_t seed) {
  Outcome out{drawn(profile, seed, [](const Case& c) { return exact(c) && c.scenario.engine.param_groups.empty(); }), 0, {}};
  const Case one(out.scenario);
  search::Draws draws = draws_of(seed);
  Parameter unused;
  unused.name = "unused";
  unused.numel = draws.between(1, 24);
  unused.used_by = Predicate::parse("micro_batch < 0", "").value();
  Scenario changed = one.scenario;
  const std::uint32_t at = draws.below(static_cast<std::uint32_t>(changed.parameters.size()) + 1);
  changed.parameters.insert(changed.parameters.begin() + at, unused);
  const Case other(std::move(changed));
  const auto without = [at](const auto& all, Outcome& into) {
    std::remove_cvref_t<decltype(all)> kept;
    for (const auto& [place, value] : all) {
      const auto [window, parameter, element] = place;
      if (parameter != at) kept.emplace(Place{window, parameter - (parameter > at), element}, value);
      else if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::set<Row>>) {
        if (value != std::set<Row>{{}}) into.differs("something weighs in the unused parameter");
      }
    }
    return kept;
  };
  compare(rows_of(books(one, Snapshots::applied)), without(rows_of(books(other, Snapshots::applied)), out), out);
  const ref::FingerprintSource source(one.timeline, one.range, seed);
  const ElementSource moved([&](std::uint32_t b, std::uint32_t r, std::uint32_t p, std::uint32_t e) { return one_of(source, b, r, p - (p > at), e); });
  const Applied of_one = applied(one, source), of_other = applied(other, moved);
  compare(of_one, {without(of_other.values, out), of_other.stopped}, out);
  return out;
}

TEST(metamorphic_order, a_parameter_that_nobody_uses_changes_no_weight_of_the_others) { expect_holds(an_unused_parameter_is_none_of_the_others_business); }

TEST(metamorphic_order, a_parameter_that_nobody_uses_shifts_the_others_where_its_gradient_is_left_out) {
  expect_fails(an_unused_parameter_is_none_of_the_others_business, as_documented("before #545", {"zero2"}));
}

}  // namespace
}  // namespace gradledger::testing::metamorphic
