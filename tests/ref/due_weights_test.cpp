// What is due, asked for one contribution after another, is what the contract says of each by itself.
#include <gtest/gtest.h>

#include <functional>

#include "ref/ledger.h"
#include "search/draw/generator.h"
#include "sim/frameworks/framework.h"
#include "tests/support/test_names.h"

namespace gradledger::ref {
namespace {

// Word for word, with nothing kept from one question to the next. Precondition: nothing is planted, so that no window is skipped.
double stated(const Scenario& scenario, const Timeline& timeline, const LedgerEntry& entry, std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter) {
  const Layer layer = entry.role == Role::applied_gradient ? Layer::meant : Layer::documented;
  const Backward& b = timeline.backwards[backward];
  const std::uint32_t last = timeline.events_behind(entry.key.event, entry.key.at_end) - 1;
  if (timeline.window_of(b, layer) != entry.step || b.event > last || timeline.dropped(backward, rank, layer) <= last) return 0;
  if (!timeline.counts(scenario, backward, rank, parameter)) return 0;
  const double factor = timeline.factor(backward, rank, parameter, last);
  const double averaged = timeline.averaged_weight_of(parameter, backward, rank, entry.key.rank, layer) * factor;
  if (entry.role == Role::applied_gradient) return timeline.two_layers && !timeline.events[entry.key.event].updates() ? 0 : averaged;
  const bool is_own = rank == timeline.contract.contributor(entry.key.rank, parameter);
  const double own = is_own ? timeline.own_weight(backward, rank) * factor : 0;
  if (entry.role == Role::local_accumulator) return entry.after == never || b.event > entry.after ? own : 0;
  const std::uint32_t reduced = timeline.reduction_before(last + 1, entry.step);
  if (reduced != never && b.event <= reduced) return averaged;
  return entry.role == Role::replicated_accumulator ? own : 0;
}

// Of every rank after every event and before it, in each role that owes something.
void each_entry(const Scenario& scenario, const Timeline& timeline, const Ledger& ledger, const std::function<void(const LedgerEntry&)>& body) {
  for (std::uint32_t event = 0; event < timeline.events.size(); ++event)
    for (const bool at_end : {false, true})
      for (std::uint32_t rank = 0; (at_end || event > 0) && rank < scenario.world_size; ++rank)
        for (const Role role : {Role::applied_gradient, Role::reduced_accumulator, Role::replicated_accumulator, Role::local_accumulator}) {
          body(ledger.empty_entry({event, at_end, rank, "buffer"}, role, never));
          if (role != Role::local_accumulator) continue;
          const std::uint32_t taken = timeline.taken_before(event, timeline.events[event].documented);
          if (taken != never) body(ledger.empty_entry({event, at_end, rank, "buffer"}, role, taken));
        }
}

class due_weights : public ::testing::TestWithParam<std::string> {};

TEST_P(due_weights, are_the_same_whatever_was_asked_for_before) {
  search::Profile profile;
  for (const Variant& variant : framework_named(GetParam())->search_space()->variants()) profile.variants.push_back(&variant);
  std::uint64_t due = 0, nothing = 0;
  for (std::uint64_t number = 0; number < 40; ++number) {
    const auto [scenario, timeline] = search::draw_case(profile, 3, number);
    if (!timeline.planted.empty()) continue;
    const Ledger ledger(scenario, timeline, probe_range(scenario, timeline));
    const auto backwards = static_cast<std::uint32_t>(timeline.backwards.size());
    each_entry(scenario, timeline, ledger, [&, &scenario = scenario, &timeline = timeline](const LedgerEntry& entry) {
      for (std::uint32_t p = 0; p < scenario.parameters.size(); ++p) {
        DueWeights by_backward = ledger.due(entry, p), by_rank = ledger.due(entry, p);
        for (std::uint32_t b = 0; b < backwards; ++b)
          for (std::uint32_t r = 0; r < scenario.world_size; ++r) {
            if (timeline.backwards[b].micro_batch[r] == no_contribution) continue;
            const double weight = stated(scenario, timeline, entry, b, r, p);
            ASSERT_EQ(by_backward.of(b, r), weight) << GetParam() << ", case " << number << ", event " << entry.key.event << ", backward " << b << " of rank " << r;
            ++(weight == 0 ? nothing : due);
          }
        for (std::uint32_t r = scenario.world_size; r-- > 0;)
          for (std::uint32_t b = backwards; b-- > 0;) {
            if (timeline.backwards[b].micro_batch[r] == no_contribution) continue;
            ASSERT_EQ(by_rank.of(b, r), stated(scenario, timeline, entry, b, r, p)) << GetParam() << ", case " << number;
          }
      }
    });
  }
  EXPECT_GT(due, 10'000u);
  EXPECT_GT(nothing, 10'000u);
}

INSTANTIATE_TEST_SUITE_P(by_framework, due_weights, ::testing::Values("deepspeed", "ddp", "fsdp1", "fsdp2", "megatron", "megatron-fsdp", "megatron-fsdp-v2"),
                         [](const auto& info) { return testing::name_of_test(info.param); });

}  // namespace
}  // namespace gradledger::ref
