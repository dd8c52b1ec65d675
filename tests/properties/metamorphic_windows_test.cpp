// How a batch is cut into micro-batches, ranks and windows must not show in what is applied.
#include "tests/properties/metamorphic.h"

#include "sim/engine/engine.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger::testing::metamorphic {
namespace {

// ---- accumulation -----------------------------------------------------------------------------------------------------------------

bool accumulates(const Case& c) {
  return exact(c) && std::any_of(c.timeline.micro_batches.begin(), c.timeline.micro_batches.end(), [](const auto& ranks) { return ranks[0] > 1; });
}

// Windows of one micro-batch, as many as the case has.
Scenario one_backward_a_window(Scenario s, std::uint32_t windows) {
  deepspeed_config(s).gradient_accumulation_steps = 1;
  s.script = {repeat(windows, {backward(), step()})};
  return s;
}

Outcome one_batch_is_as_many_micro_batches(const search::Profile& profile, std::uint64_t seed) {
  Outcome out{drawn(profile, seed, accumulates), 0, {}};
  const Case many(out.scenario), one(one_backward_a_window(out.scenario, many.timeline.steps));
  const double share = 1.0 / deepspeed_config(many.scenario).gradient_accumulation_steps;
  const ref::FingerprintSource of_many(many.timeline, many.range, seed);
  // The batch's gradient: the sum of its micro-batches' shares.
  const ElementSource of_one([&](std::uint32_t b, std::uint32_t r, std::uint32_t p, std::uint32_t element) {
    double sum = 0;
    for (const std::uint32_t each : many.backwards_of(b)) sum += one_of(of_many, each, r, p, element);
    return sum * share;
  });
  compare(applied(many, of_many), applied(one, of_one), out);
  // Each micro-batch weighs its share of what the one batch weighs.
  Rows divided;
  for (const auto& [place, rows] : rows_of(books(one, Snapshots::applied)))
    for (const Row& row : rows) {
      Row into;
      for (const auto& [contribution, weight] : row)
        for (const std::uint32_t each : many.backwards_of(contribution.step)) into[many.timeline.contribution(each, contribution.rank)] = weight * share;
      divided[place].insert(std::move(into));
    }
  compare(rows_of(books(many, Snapshots::applied)), divided, out);
  return out;
}

TEST(metamorphic_windows, accumulated_micro_batches_apply_what_one_batch_does) { expect_holds(one_batch_is_as_many_micro_batches); }

TEST(metamorphic_windows, accumulated_micro_batches_apply_less_where_offload_loses) {
  expect_fails(one_batch_is_as_many_micro_batches, as_documented("before #7981", {"zero1-offload", "zero2-offload"}));
}

// ---- one global batch, cut in another way -----------------------------------------------------------------------------------------

struct Cut {
  std::uint32_t world = 1, steps = 1, samples = 1;
  std::uint32_t batch() const { return world * steps * samples; }
};

Cut any_cut(search::Draws& draws, std::uint32_t batch) {
  Cut out{draws.of({1u, 2u, 4u}), draws.of({1u, 2u, 4u, 8u}), 1};
  while (out.world * out.steps > batch) (out.steps > 1 ? out.steps : out.world) /= 2;
  out.samples = batch / (out.world * out.steps);
  return out;
}

Scenario cut(Scenario s, const Cut& by, std::uint32_t windows) {
  s.world_size = by.world;
  deepspeed_config(s).gradient_accumulation_steps = by.steps;
  s.gradients.samples_per_micro_batch = by.samples;
  s.script = {repeat(windows, managed(by.steps))};
  return s;
}

// A micro-batch's gradient is the mean of its samples, integers times a unit that leaves what is deposited one for every cut.
class SampleSource final : public GradientSource {
 public:
  SampleSource(const Case& c, const Cut& by, std::uint64_t seed) : case_(c), by_(by), seed_(seed) {
    const double deposited = c.range.unit / deepspeed_config(c.scenario).gradient_accumulation_steps;  // a power of two over the loss scale
    unit_ = deposited * by.batch();
    value_max_ = (1u << (c.range.precision - 1)) / by.batch();
  }

  void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override {
    const Backward& b = case_.timeline.backwards[backward];
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::uint64_t sum = 0;
      for (std::uint32_t s = 0; s < by_.samples; ++s) {
        const std::uint64_t sample = (std::uint64_t{rank} * by_.steps + b.micro_batch[rank]) * by_.samples + s;
        sum += 1 + hash_keys({seed_, b.step, sample, parameter, offset + i}) % value_max_;
      }
      out[i] = unit_ * static_cast<double>(sum) / by_.samples;
    }
  }

 private:
  const Case& case_;
  Cut by_;
  std::uint64_t seed_;
  double unit_;
  std::uint32_t value_max_;
};

// What a sample weighs, by window and element; ranks and micro-batches are no more.
std::map<Place, std::set<double>> weight_of_a_sample(const Case& c, const Cut& by) {
  std::map<Place, std::set<double>> out;
  for (const auto& [place, rows] : rows_of(books(c, Snapshots::applied)))
    for (const Row& row : rows) {
      for (const auto& [contribution, weight] : row) out[place].insert(weight / by.samples);
      if (row.size() != by.world * by.steps) out[place].insert(0.0);
    }
  return out;
}

Outcome a_batch_may_be_cut_in_any_way(const search::Profile& profile, std::uint64_t seed) {
  Outcome out{drawn(profile, seed, exact), 0, {}};
  search::Draws draws = draws_of(seed);
  const std::uint32_t windows = Case(out.scenario).timeline.steps, batch = draws.of({2u, 4u, 8u, 16u});
  const Cut by = any_cut(draws, batch);
  Cut otherwise = any_cut(draws, batch);
  while (otherwise.world == by.world && otherwise.steps == by.steps) otherwise = any_cut(draws, batch);
  const Case one(cut(out.scenario, by, windows)), other(cut(out.scenario, otherwise, windows));
  compare(applied(one, SampleSource(one, by, seed)), applied(other, SampleSource(other, otherwise, seed)), out);
  compare(weight_of_a_sample(one, by), weight_of_a_sample(other, otherwise), "weights of a sample", out);
  return out;
}

TEST(metamorphic_windows, ranks_and_accumulation_steps_at_one_global_batch_apply_the_same) { expect_holds(a_batch_may_be_cut_in_any_way); }

TEST(metamorphic_windows, ranks_and_accumulation_steps_show_where_a_boundary_leaks) {
  expect_fails(a_batch_may_be_cut_in_any_way, as_documented("before #7985", {"bf16-optimizer"}));
}

// ---- time -------------------------------------------------------------------------------------------------------------------------

std::vector<std::uint32_t> events_of(const Case& c, std::uint32_t window) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t e = 0; e < c.timeline.events.size(); ++e)
    if (c.window_of(e) == window) out.push_back(e);
  return out;
}

bool repeats(const Case& c) {
  if (!exact(c) || c.timeline.steps < 2 || c.timeline.open_window) return false;
  const auto first = events_of(c, 0);
  for (std::uint32_t w = 1; w < c.timeline.steps; ++w) {
    const auto events = events_of(c, w);
    const auto alike = [&](std::uint32_t a, std::uint32_t b) { return c.timeline.events[a].kind() == c.timeline.events[b].kind(); };
    if (!std::equal(first.begin(), first.end(), events.begin(), events.end(), alike)) return false;
  }
  return true;
}

// The snapshots of the gradients that a window alone makes, its events numbered from 0. What an update leaves is the next window's.
Books of_window(const Case& c, const Books& all, std::uint32_t window) {
  Books out{{}, all.stopped};
  const std::uint32_t first = events_of(c, window).front();
  for (const auto& [key, entry] : all.entries) {
    if (entry.step != window || c.window_of(key.event) != window) continue;
    ref::SnapshotKey moved = key;
    moved.event -= first;
    out.entries.emplace(moved, entry);
  }
  return out;
}

Outcome windows_are_alike(const search::Profile& profile, std::uint64_t seed) {
  Outcome out{drawn(profile, seed, repeats), 0, {}};
  const Case c(out.scenario);
  const Books all = books(c, Snapshots::all);
  const ref::FingerprintSource source(c.timeline, c.range, seed, 1);  // the same probes in every window
  const Applied values = applied(c, source);
  const auto values_of = [&](std::uint32_t window) {
    Applied of{{}, values.stopped};
    for (const auto& [place, value] : values.values)
      if (std::get<0>(place) == window) of.values[{0, std::get<1>(place), std::get<2>(place)}] = value;
    return of;
  };
  for (std::uint32_t w = 0; w + 1 < c.timeline.steps; ++w) {
    compare(of_window(c, all, w), of_window(c, all, w + 1), out, 1);
    compare(values_of(w), values_of(w + 1), out);
  }
  return out;
}

TEST(metamorphic_windows, equal_windows_have_equal_ledgers_one_step_apart) { expect_holds(windows_are_alike); }

TEST(metamorphic_windows, equal_windows_differ_where_a_step_leaves_gradients_behind) { expect_fails(windows_are_alike, as_documented("before #7839", {"zero0"})); }

}  // namespace
}  // namespace gradledger::testing::metamorphic
