// Ranks whose programs are alike share one check of streams: what it finds must be what a check of each rank's whole program finds.
#include <gtest/gtest.h>

#include <functional>
#include <tuple>
#include <vector>

#include "sim/execution/alike_programs.h"
#include "tests/support/scripted_engine.h"

namespace gradledger::testing {
namespace {

using Said =
    std::tuple<std::uint32_t, std::uint32_t, std::string, std::uint64_t, std::uint64_t, std::string, std::uint32_t, std::uint32_t, std::string, std::uint32_t, std::uint32_t>;

std::vector<Said> said(const std::vector<RaceRecord>& races) {
  std::vector<Said> out;
  for (const RaceRecord& r : races)
    out.emplace_back(r.rank, r.event, r.buffer, r.begin, r.end, r.first.operation, r.first.event, r.first.number, r.second.operation, r.second.event, r.second.number);
  return out;
}

constexpr std::uint32_t ranks = 4, part = 8;

// Each rank has a buffer of a part for every rank, and fills all of it. `then` writes the rest of an event.
struct PartsOfABuffer {
  using Then = std::function<void(std::uint32_t rank, std::uint32_t event, Slice whole, ProgramWriter& w)>;

  explicit PartsOfABuffer(Then then) {
    hooks.initialise = [this](std::uint32_t rank, ProgramWriter& w) {
      whole[rank] = w.whole(w.declare("parts", Dtype::float32, ranks * part));
      w.allocate(whole[rank].buffer);
    };
    hooks.handle = [this, then = std::move(then)](std::uint32_t rank, const Event&, ProgramWriter& w) {
      w.synchronize();
      w.fill(whole[rank], 1.0);
      then(rank, w.event(), whole[rank], w);
      OnStream host(w, Stream::host);
      w.observe(w.view("parts", {ViewPiece{whole[rank], 0, 0}}), Role::scratch, 1.0, true);
    };
  }

  std::vector<Said> races(bool once) const {
    RunOptions options;
    options.linear = options.check_streams = true;
    options.once = once;
    return said(run_scripted(ranks, hooks, options, std::vector<ScriptItem>(6, event(ScriptKind::forward))).seen.races);
  }

  std::array<Slice, ranks> whole;
  ScriptedEngine::Hooks hooks;
};

Slice own_part(std::uint32_t rank, Slice whole) { return whole.part(rank * part, part); }

void fill_on(Stream stream, Slice slice, ProgramWriter& w) {
  OnStream there(w, stream);
  w.fill(slice, 2.0);
}

TEST(alike_programs, without_a_race_have_none_on_any_rank) {
  const PartsOfABuffer program([](std::uint32_t rank, std::uint32_t, Slice whole, ProgramWriter& w) { w.multiply(own_part(rank, whole), 2.0); });
  EXPECT_TRUE(program.races(false).empty());
  EXPECT_TRUE(program.races(true).empty());
}

TEST(alike_programs, name_a_race_of_each_rank_at_its_own_place) {
  const PartsOfABuffer program([](std::uint32_t rank, std::uint32_t event, Slice whole, ProgramWriter& w) {
    w.multiply(own_part(rank, whole), 2.0);
    if (event >= 3) fill_on(Stream::communication, own_part(rank, whole).part(2, 3), w);
  });
  const std::vector<Said> expected = program.races(false);
  ASSERT_GE(expected.size(), ranks);
  EXPECT_EQ(program.races(true), expected);
  EXPECT_EQ(std::get<3>(expected.back()), (ranks - 1) * part + 2);
}

// What it does otherwise races with what it did like the others, before.
TEST(alike_programs, go_apart_with_what_they_did_in_common) {
  for (const std::uint32_t apart : {0u, 2u}) {
    const PartsOfABuffer program([apart](std::uint32_t rank, std::uint32_t event, Slice whole, ProgramWriter& w) {
      if (event == 2) fill_on(Stream::copy, own_part(rank, whole).part(1, 2), w);
      if (event == 2 && rank == apart) fill_on(Stream::side, own_part(rank, whole).part(2, 4), w);
    });
    const std::vector<Said> expected = program.races(false);
    EXPECT_EQ(program.races(true), expected);
    const PartsOfABuffer waits([apart](std::uint32_t rank, std::uint32_t event, Slice whole, ProgramWriter& w) {
      if (event == 2 && rank == apart) fill_on(Stream::side, own_part(rank, whole), w);
    });
    EXPECT_EQ(waits.races(true), waits.races(false));
    ASSERT_EQ(waits.races(true).size(), 1u);
    EXPECT_EQ(std::get<0>(waits.races(true).front()), apart);
  }
}

// Who follows whom: without it a class could be of one rank each, and every other test here would pass.
TEST(alike_programs, have_a_class_for_each_end_of_a_buffer_and_one_for_all_between) {
  std::vector<Rank> world(6);
  AlikePrograms alike(world);
  const auto write = [&](std::uint32_t r, const std::function<void(ProgramWriter&, Slice whole)>& body) {
    ProgramWriter w(world[r].program);
    body(w, {0, 0, world.size() * part});
  };
  for (std::uint32_t r = 0; r < world.size(); ++r) {
    write(r, [&](ProgramWriter& w, Slice) { w.allocate(w.declare("parts", Dtype::float32, world.size() * part)); });
    alike.begin(r);
    EXPECT_EQ(alike.leader(r), 0u);
  }
  for (std::uint32_t r = 0; r < world.size(); ++r) {
    write(r, [&](ProgramWriter& w, Slice whole) {
      w.fill(whole, 1.0);
      w.multiply(own_part(r, whole), 2.0);
    });
    alike.wrote(r);
  }
  for (std::uint32_t r = 0; r < world.size(); ++r) {
    EXPECT_EQ(alike.leader(r), r == 0 || r + 1 == world.size() ? r : 1u) << r;
    EXPECT_TRUE(alike.is_compared(r)) << r;
  }
  for (std::uint32_t r = 0; r < world.size(); ++r) {
    write(r, [&](ProgramWriter& w, Slice whole) { w.fill(whole, r == 3 ? 2.0 : 1.0); });
    alike.wrote(r);
  }
  EXPECT_EQ(alike.leader(2), 1u);
  EXPECT_EQ(alike.leader(3), 3u) << "it did something else";
  EXPECT_EQ(alike.leader(4), 1u);
}

// Its part is cut elsewhere than the others' are, so that what follows meets other stretches.
TEST(alike_programs, are_told_apart_where_their_accesses_meet_otherwise) {
  const PartsOfABuffer program([](std::uint32_t rank, std::uint32_t event, Slice whole, ProgramWriter& w) {
    const Slice own = own_part(rank, whole);
    if (event == 1) fill_on(Stream::copy, own.part(rank == 3 ? 2 : 0, 3), w);
    if (event == 1) fill_on(Stream::side, own.part(4, 2), w);
  });
  const std::vector<Said> expected = program.races(false);
  EXPECT_EQ(program.races(true), expected);
}

}  // namespace
}  // namespace gradledger::testing
