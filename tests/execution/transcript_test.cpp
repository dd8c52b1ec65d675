// Two transcripts that differ in one record are told apart, and the record is named.
#include "sim/trace/transcript.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace gradledger::testing {
namespace {

// One record of every kind, all of event 3 on rank 1. Taken apart before they are reported, so that a test can change one.
struct Report {
  std::vector<float> elements{1.0f, 2.0f, 3.0f};
  std::vector<ObservedPiece> pieces{{.parameter = 0, .parameter_offset = 4, .numel = 2}, {.parameter = -1, .numel = 1}};
  Observation snapshot{.rank = 1, .event = 3, .buffer = "grads[0]", .role = Role::local_accumulator};
  CollectiveRecord call{.rank = 1, .event = 3, .sequence = 5, .numel = 64};
  MemoryRecord memory{.rank = 1, .event = 3, .buffer = "bucket", .bytes = 256};
  StepRecord fact{.rank = 1, .event = 3, .fact = StepFact::gradient_norm, .value = 1.5};
  UnwrittenRecord unwritten{.rank = 1, .event = 3, .buffer = "flat", .begin = 2, .end = 7, .reader = "step"};
  EngineErrorRecord error{.rank = 1, .event = 3, .type = "TypeError", .message = "is None"};
  DeadlockRecord deadlock{{{.rank = 1, .event = 3, .collective = CollectiveRecord{.rank = 1, .event = 3, .kind = CollectiveKind::broadcast}}}};
  MismatchRecord mismatch{"size", {{.rank = 1, .event = 3, .kind = CollectiveKind::reduce}}};
  bool ends = true;

  Transcript transcript(std::optional<Transcript::Place> kept = std::nullopt) {
    Transcript out(kept);
    pieces[0].data = reinterpret_cast<const std::byte*>(elements.data());
    pieces[1].data = reinterpret_cast<const std::byte*>(elements.data() + 2);
    snapshot.pieces = pieces;
    out.observe(snapshot);
    out.collective(call);
    out.memory(memory);
    out.step_fact(fact);
    out.unwritten(unwritten);
    out.engine_error(error);
    out.deadlock(deadlock);
    out.mismatch(mismatch);
    if (ends) out.event_done(1, 3);
    return out;
  }
};

using Change = std::function<void(Report&)>;

std::optional<TraceDifference> difference_after(const Change& change, std::optional<Transcript::Place> kept = std::nullopt) {
  Report one, other;
  change(other);
  return first_difference(one.transcript(kept), other.transcript(kept));
}

// Either way round: at event 3 on rank 1, with a name that says which record it is.
void expect_named(const std::string& name, const std::vector<Change>& changes) {
  for (std::size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(name + ", change " + std::to_string(i));
    Report same, changed;
    changes[i](changed);
    for (const bool swapped : {false, true}) {
      const Transcript one = same.transcript(), other = changed.transcript();
      const auto difference = swapped ? first_difference(other, one) : first_difference(one, other);
      ASSERT_TRUE(difference);
      EXPECT_EQ(difference->event, 3u);
      EXPECT_EQ(difference->rank, 1u);
      EXPECT_TRUE(difference->what.starts_with(name)) << difference->what;
      EXPECT_NE(difference->one, difference->other);
    }
  }
}

TEST(transcripts, of_equal_runs_do_not_differ) {
  EXPECT_FALSE(difference_after([](Report&) {}));
  EXPECT_FALSE(difference_after([](Report&) {}, Transcript::Place{3, 1}));
  EXPECT_FALSE(first_difference(Transcript(), Transcript()));
}

TEST(transcripts, differ_in_a_snapshot_by_any_bit_and_by_what_it_is_of) {
  expect_named("snapshot grads[0]", {
                                        [](Report& r) { r.elements[1] = std::nextafter(2.0f, 3.0f); },
                                        [](Report& r) { r.snapshot.role = Role::reduced_accumulator; },
                                        [](Report& r) { r.snapshot.scale = 2; },
                                        [](Report& r) { r.pieces[0].parameter = 1; },
                                        [](Report& r) { r.pieces[0].parameter_offset = 5; },
                                        [](Report& r) { r.pieces[0].numel = 1; },
                                        [](Report& r) { r.pieces[0].dtype = Dtype::bfloat16; },
                                        [](Report& r) {
                                          r.pieces.pop_back();
                                          r.pieces.push_back({.numel = 2});
                                        },
                                        [](Report& r) { r.snapshot.at_end = false; },
                                    });
  EXPECT_FALSE(difference_after([](Report& r) { r.elements[2] = 4.0f; })) << "padding is nobody's";
}

TEST(transcripts, that_kept_a_snapshot_tell_how_many_elements_differ_and_the_bits_of_the_first) {
  const auto kept = difference_after([](Report& r) { r.elements[1] = -2.0f; }, Transcript::Place{3, 1});
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->elements, 1u);
  EXPECT_EQ(kept->of, 2u);
  EXPECT_EQ(kept->first, 1u);
  EXPECT_EQ(kept->one, "0x40000000");
  EXPECT_EQ(kept->other, "0xc0000000");
  const auto elsewhere = difference_after([](Report& r) { r.elements[1] = -2.0f; }, Transcript::Place{3, 0});
  ASSERT_TRUE(elsewhere);
  EXPECT_EQ(elsewhere->elements, 0u);
  EXPECT_TRUE(elsewhere->one.starts_with("hash ")) << elsewhere->one;
}

TEST(transcripts, differ_in_a_step_fact_by_any_bit_and_are_equal_where_both_are_not_a_number) {
  expect_named("step fact ", {
                                 [](Report& r) { r.fact.value = std::nextafter(1.5, 2.0); },
                                 [](Report& r) { r.fact.value = std::numeric_limits<double>::quiet_NaN(); },
                                 [](Report& r) { r.fact.fact = StepFact::loss_scale; },
                             });
  Report one, other;
  one.fact.value = std::numeric_limits<double>::quiet_NaN();
  other.fact.value = -std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(first_difference(one.transcript(), other.transcript())) << "the payload is the processor's";
}

TEST(transcripts, differ_in_a_collective_by_each_of_its_fields) {
  expect_named("collective ", {
                                  [](Report& r) { r.call.kind = CollectiveKind::all_gather; },
                                  [](Report& r) { r.call.op = ReduceOp::avg; },
                                  [](Report& r) { r.call.numel = 65; },
                                  [](Report& r) { r.call.dtype = Dtype::bfloat16; },
                                  [](Report& r) { r.call.group = 1; },
                                  [](Report& r) { r.call.sequence = 6; },
                                  [](Report& r) { r.call.purpose = Purpose::norm; },
                                  [](Report& r) { r.call.root = 1; },
                              });
}

TEST(transcripts, differ_in_what_is_allocated_and_released) {
  expect_named("allocation of bucket", {
                                           [](Report& r) { r.memory.bytes = 257; },
                                           [](Report& r) { r.memory.space = MemorySpace::host; },
                                           [](Report& r) { r.memory.at_start = true; },
                                           [](Report& r) { r.memory.allocated = false; },
                                           [](Report& r) { r.memory.buffer = "cast"; },
                                       });
}

TEST(transcripts, differ_in_unwritten_memory_and_in_what_read_it) {
  expect_named("unwritten memory of flat", {
                                               [](Report& r) { r.unwritten.begin = 3; },
                                               [](Report& r) { r.unwritten.end = 8; },
                                               [](Report& r) { r.unwritten.released = true; },
                                               [](Report& r) { r.unwritten.reader = "update"; },
                                               [](Report& r) { r.unwritten.buffer = "flat_two"; },
                                           });
}

TEST(transcripts, differ_in_the_error_of_an_engine) {
  expect_named("TypeError", {[](Report& r) { r.error.message = "is not None"; }, [](Report& r) { r.error.type = "ValueError"; }});
}

TEST(transcripts, differ_in_a_deadlock_by_what_a_rank_waits_for) {
  expect_named("deadlock", {
                               [](Report& r) { r.deadlock.ranks[0].collective->numel = 1; },
                               [](Report& r) { r.deadlock.ranks[0].collective->sequence = 1; },
                               [](Report& r) { r.deadlock.ranks[0].collective.reset(); },
                               [](Report& r) { r.deadlock.ranks[0].finished = true; },
                               [](Report& r) { r.deadlock.ranks.clear(); },
                           });
}

TEST(transcripts, differ_in_a_mismatch_by_its_calls) {
  expect_named("mismatch in size", {
                                       [](Report& r) { r.mismatch.calls[0].numel = 1; },
                                       [](Report& r) { r.mismatch.calls[0].root = 1; },
                                       [](Report& r) { r.mismatch.calls[0].sequence = 1; },
                                       [](Report& r) { r.mismatch.what = "size of all"; },
                                       [](Report& r) { r.mismatch.calls.clear(); },
                                   });
}

TEST(transcripts, differ_where_an_event_does_not_end) {
  expect_named("end of the event", {[](Report& r) { r.ends = false; }});
  const auto difference = difference_after([](Report& r) { r.ends = false; });
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->one, "end of the event");
  EXPECT_EQ(difference->other, "nothing");
}

TEST(transcripts, with_the_same_records_in_another_interleaving_do_not_differ) {
  Report a, b;
  a.fact.rank = 0;
  Transcript one = a.transcript(), other;
  Report later = a;
  other.event_done(1, 3);
  other.mismatch(later.mismatch);
  other.deadlock(later.deadlock);
  other.engine_error(later.error);
  other.unwritten(later.unwritten);
  other.step_fact(later.fact);
  other.memory(later.memory);
  other.collective(later.call);
  later.snapshot.pieces = a.pieces;
  other.observe(later.snapshot);
  EXPECT_FALSE(first_difference(one, other));
}

TEST(transcripts, are_said_to_part_at_the_first_event_and_there_at_the_first_rank) {
  const auto with = [](std::initializer_list<std::pair<Transcript::Place, double>> facts) {
    Transcript out;
    for (const auto& [place, value] : facts) out.step_fact({.rank = place.second, .event = place.first, .fact = StepFact::gradient_norm, .value = value});
    return out;
  };
  const auto difference = first_difference(with({{{2, 0}, 1}, {{1, 1}, 1}, {{1, 0}, 1}}), with({{{2, 0}, 2}, {{1, 1}, 2}, {{1, 0}, 1}}));
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->event, 1u);
  EXPECT_EQ(difference->rank, 1u);
  const auto missing = first_difference(with({{{4, 2}, 1}}), Transcript());
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->event, 4u);
  EXPECT_EQ(missing->one, "step fact global_grad_norm");
  EXPECT_EQ(missing->other, "nothing");
}

}  // namespace
}  // namespace gradledger::testing
