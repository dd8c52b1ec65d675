// Rows of chunks: one operation does what a copy for each chunk does, on numbers and on weights, and buffers that are kept by chunks show what others show.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "sim/base/hash.h"
#include "sim/execution/happens_before.h"
#include "sim/execution/symbolic/symbolic_memory.h"
#include "tests/support/scripted_engine.h"

namespace gradledger::testing {
namespace {

// Up to 4 sources, some of them empty or shorter than their rows.
Interleaving drawn(SplitMix64& random, BufferId first_source) {
  Interleaving out{{}, 1 + random.below(4)};
  const std::uint32_t parts = 1 + random.below(4);
  for (std::uint32_t i = 0; i < parts; ++i) {
    const std::uint64_t chunk = 1 + random.below(5);
    out.parts.push_back({{first_source + i, 0, random.below(static_cast<std::uint32_t>(out.rows * chunk) + 1)}, chunk});
  }
  return out;
}

void copy_each(ProgramWriter& w, Slice target, const Interleaving& of) {
  of.each(target, [&](Slice to, Slice from) { w.copy(to, from); });
}

void copy_each_back(ProgramWriter& w, Slice source, const Interleaving& of) {
  of.each(source, [&](Slice from, Slice to) { w.copy(to, from); });
}

// The same shape with other slices, each of a new buffer that is allocated.
Interleaving elsewhere(ProgramWriter& w, Interleaving of, const std::string& name) {
  for (Interleaving::Part& part : of.parts) {
    part.slice.buffer = w.declare(name, Dtype::bfloat16, of.rows * part.chunk);
    w.allocate(part.slice.buffer);
  }
  return of;
}

ViewId view_of(ProgramWriter& w, const std::string& name, const Interleaving& of) {
  std::vector<ViewPiece> pieces;
  std::uint64_t at = 0;
  for (const Interleaving::Part& part : of.parts) {
    pieces.push_back({part.slice, 0, at});
    at += part.slice.numel;
  }
  return w.view(name, std::move(pieces));
}

// Element by element.
std::vector<Stretch> spread(const Stretches& all) {
  std::vector<Stretch> out;
  for (const Stretch& s : all)
    for (std::uint64_t x = s.begin; x < s.end; ++x) out.push_back({x, x + 1, s.form, s.pace, s.origin});
  return out;
}

TEST(an_interleaving, is_a_copy_of_each_chunk_on_numbers) {
  SplitMix64 random(1);
  for (int i = 0; i < 100; ++i) {
    const Interleaving shape = drawn(random, 0);
    ScriptedEngine::Hooks hooks;
    hooks.handle = [&](std::uint32_t, const Event&, ProgramWriter& w) {
      const Interleaving of = elsewhere(w, shape, "source");
      double value = 0;
      for (const Interleaving::Part& part : of.parts)
        for (std::uint64_t x = 0; x < part.slice.numel; ++x) w.fill(part.slice.part(x, 1), ++value);
      std::vector<Slice> targets;
      for (const char* name : {"by one", "by many"}) {
        const BufferId b = w.declare(name, Dtype::float32, of.numel());
        w.allocate(b);
        w.fill(w.whole(b), -1);
        targets.push_back(w.whole(b));
      }
      w.interleave(targets[0], of);
      copy_each(w, targets[1], of);
      w.observe(w.view("by one", {ViewPiece{targets[0], 0, 0}}), Role::scratch, 1.0, false);
      w.observe(w.view("by many", {ViewPiece{targets[1], 0, 0}}), Role::scratch, 1.0, false);
      const Interleaving by_one = elsewhere(w, shape, "back by one"), by_many = elsewhere(w, shape, "back by many");
      w.part_rows(targets[0], by_one);
      copy_each_back(w, targets[1], by_many);
      w.observe(view_of(w, "given", of), Role::scratch, 1.0, false);
      w.observe(view_of(w, "back by one", by_one), Role::scratch, 1.0, false);
      w.observe(view_of(w, "back by many", by_many), Role::scratch, 1.0, false);
    };
    const ScriptedRun run = run_scripted(1, hooks);
    const std::vector<double>& one = run.seen.snapshots.at({0, 0, "by one"});
    EXPECT_EQ(one, run.seen.snapshots.at({0, 0, "by many"}));
    const std::uint64_t given = std::accumulate(shape.parts.begin(), shape.parts.end(), std::uint64_t{0}, [](std::uint64_t n, const auto& part) { return n + part.slice.numel; });
    EXPECT_EQ(static_cast<std::uint64_t>(std::count_if(one.begin(), one.end(), [](double x) { return x > 0; })), given);
    EXPECT_TRUE(run.seen.races.empty());
    EXPECT_EQ(run.seen.snapshots.at({0, 0, "back by one"}), run.seen.snapshots.at({0, 0, "back by many"}));
    const std::vector<double>& given_back = run.seen.snapshots.at({0, 0, "back by one"});
    EXPECT_EQ(given_back, run.seen.snapshots.at({0, 0, "given"}));
    EXPECT_EQ(given_back.size(), given);
  }
}

TEST(the_way_back_of_an_interleaving, is_reported_where_no_wait_orders_it_behind_what_wrote_its_rows_or_reads_its_slices) {
  for (const bool waits : {false, true}) {
    Program program;
    ProgramWriter w(program);
    const Slice rows = w.whole(w.declare("rows", Dtype::float32, 4)), slice = w.whole(w.declare("slice", Dtype::float32, 4));
    const Slice read = w.whole(w.declare("read", Dtype::float32, 4));
    w.fill(rows, 1);
    w.copy(read, slice);
    const std::uint32_t filled = w.record();
    OnStream other(w, Stream::communication);
    if (waits) w.wait(filled);
    w.part_rows(rows, {{{slice, 2}}, 2});
    EXPECT_EQ(stream_races(program, 0).size(), waits ? 0u : 2u);
  }
}

TEST(an_interleaving, is_reported_where_no_wait_orders_it_behind_what_wrote_its_sources) {
  for (const bool waits : {false, true}) {
    Program program;
    ProgramWriter w(program);
    const Slice source = w.whole(w.declare("source", Dtype::float32, 4)), target = w.whole(w.declare("target", Dtype::float32, 4));
    w.fill(source, 1);
    const std::uint32_t filled = w.record();
    OnStream other(w, Stream::communication);
    if (waits) w.wait(filled);
    w.interleave(target, {{{source, 2}}, 2});
    EXPECT_EQ(stream_races(program, 0).size(), waits ? 0u : 1u);
  }
}

// A world of 3 ranks, each with 4 sources of up to 20 elements, that are parts of one parameter.
struct OnWeights {
  static constexpr std::uint32_t ranks = 3;
  Workload workload;
  Timeline timeline;
  Program program;
  SymbolicMemory memory;

  static Workload one_parameter() {
    Workload out;
    out.world_size = ranks;
    out.parameters.resize(1);
    out.parameters[0].numel = 80;
    return out;
  }

  OnWeights() : workload(one_parameter()), memory(workload, timeline) {}

  template <class Body>
  void run(Body&& body) {
    const std::size_t before = program.ops.size();
    ProgramWriter w(program);
    body(w);
    for (std::uint32_t r = 0; r < ranks; ++r) {
      memory.prepare(r, program);
      for (std::size_t i = before; i < program.ops.size(); ++i) EXPECT_TRUE(memory.execute(program.ops[i], r, program));
    }
  }

  // What each element holds, as it is shown.
  std::vector<std::tuple<std::uint64_t, WeightPiece::Held, std::uint32_t, std::int64_t>> shown(std::uint32_t rank, Slice slice) {
    std::vector<std::tuple<std::uint64_t, WeightPiece::Held, std::uint32_t, std::int64_t>> out;
    const View view{"view", {{slice, 0, 0}}};
    for (const WeightPiece& piece : memory.show(rank, view))
      for (std::uint64_t x = 0; x < piece.numel; ++x)
        out.emplace_back(piece.parameter_offset + x, piece.held, piece.held == WeightPiece::Held::weights ? piece.form : 0,
                         piece.held == WeightPiece::Held::weights ? piece.shift : 0);
    return out;
  }
};

// A reduce-scatter in place over all ranks, a row to each.
void reduce_rows(OnWeights& on, Slice target, std::uint64_t row) {
  std::vector<CollectiveCall> calls(OnWeights::ranks);
  std::vector<SymbolicParticipant> participants;
  for (std::uint32_t r = 0; r < OnWeights::ranks; ++r) {
    calls[r].kind = CollectiveKind::reduce_scatter;
    calls[r].input = target;
    calls[r].output = target.part(r * row, row);
    participants.push_back({r, &calls[r]});
  }
  on.memory.perform(participants, 0);
}

// Some stretch of two buffers, on each rank.
void expect_alike(OnWeights& on, const std::vector<Slice>& targets, std::uint64_t numel, SplitMix64& random, const std::string& when) {
  for (std::uint32_t r = 0; r < OnWeights::ranks; ++r) {
    const std::uint64_t from = random.below(static_cast<std::uint32_t>(numel) + 1), count = random.below(static_cast<std::uint32_t>(numel - from) + 1);
    ASSERT_EQ(on.shown(r, targets[0].part(from, count)), on.shown(r, targets[1].part(from, count))) << when << ", rank " << r;
  }
}

// Rows that are cut by one operation, and rows that are cut by many.
void expect_cut_alike(OnWeights& on, Slice by_one, Slice by_many, const Interleaving& of, const std::string& when) {
  std::vector<Interleaving> back;
  on.run([&](ProgramWriter& w) {
    for (const char* name : {"back by one", "back by many"}) back.push_back(elsewhere(w, of, name));
    w.part_rows(by_one, back[0]);
    copy_each_back(w, by_many, back[1]);
  });
  for (std::uint32_t r = 0; r < OnWeights::ranks; ++r)
    for (std::size_t part = 0; part < of.parts.size(); ++part) ASSERT_EQ(on.shown(r, back[0].parts[part].slice), on.shown(r, back[1].parts[part].slice)) << when << ", rank " << r;
}

TEST(an_interleaving, is_a_copy_of_each_chunk_on_weights_through_whatever_follows) {
  SplitMix64 random(2);
  for (int i = 0; i < 200; ++i) {
    OnWeights on;
    std::vector<Slice> sources, targets;
    Interleaving of = drawn(random, 0);
    of.rows = OnWeights::ranks;
    for (Interleaving::Part& part : of.parts) part.slice.numel = std::min<std::uint64_t>(part.slice.numel, of.rows * part.chunk);
    on.run([&](ProgramWriter& w) {
      for (std::uint32_t s = 0; s < of.parts.size(); ++s) {
        sources.push_back(w.whole(w.declare("source", Dtype::float32, 20)));
        w.allocate(sources.back().buffer);
        w.deposit(sources.back(), s % 2, 0, 20 * s, 1, false);
      }
      for (const char* name : {"by one", "by many"}) {
        targets.push_back(w.whole(w.declare(name, Dtype::float32, of.numel())));
        w.allocate(targets.back().buffer);
        if (i % 2 == 0) w.fill(targets.back(), 0);
      }
      w.interleave(targets[0], of);
      copy_each(w, targets[1], of);
      for (const Slice& target : targets) w.divide(target, 3);
    });
    const std::string shape = "shape " + std::to_string(i);
    const std::uint64_t row = of.numel() / of.rows;
    expect_alike(on, targets, of.numel(), random, shape + " cut and divided");
    for (const Slice& target : targets) reduce_rows(on, target, row);
    expect_alike(on, targets, of.numel(), random, shape + " reduced");
    on.run([&](ProgramWriter& w) {
      for (const Slice& target : targets) {
        w.multiply(target.part(row, row), 5);
        w.accumulate(target.part(0, row), target.part(row, row));
        w.fill(target.part(0, 1), 0);
      }
    });
    expect_alike(on, targets, of.numel(), random, shape + " in part multiplied, added and filled");
    expect_cut_alike(on, targets[0], targets[1], of, shape);
    on.run([&](ProgramWriter& w) { w.fill(targets[0], 7); });
    expect_cut_alike(on, targets[0], targets[0], of, shape + " of rows that are alike");
  }
}

TEST(a_piecewise_buffer, shows_the_same_whether_it_is_kept_by_chunks_or_not) {
  SplitMix64 random(3);
  for (int i = 0; i < 200; ++i) {
    const Interleaving shape = drawn(random, 0);
    Rows rows{{}, shape.rows};
    for (const Interleaving::Part& part : shape.parts) rows.chunks.push_back(part.chunk);
    PiecewiseBuffer plain(shape.numel()), by_chunks(shape.numel());
    by_chunks.clear_to(std::make_shared<Rows>(rows));
    for (int n = 0; n < 20; ++n) {
      const std::uint64_t from = random.below(static_cast<std::uint32_t>(shape.numel())), count = 1 + random.below(static_cast<std::uint32_t>(shape.numel() - from));
      Stretches written, a, b;
      for (std::uint64_t x = 0; x < count;) {
        const std::uint64_t end = x + 1 + random.below(static_cast<std::uint32_t>(count - x));
        append(written, {x, end, 2 + random.below(3), random.below(2), static_cast<std::int64_t>(random.below(3))});
        x = end;
      }
      plain.write(from, written);
      by_chunks.write(from, written);
      plain.read(from / 2, shape.numel() - from / 2, a);
      by_chunks.read(from / 2, shape.numel() - from / 2, b);
      ASSERT_EQ(a, b);
      ASSERT_EQ(spread(a).size(), shape.numel() - from / 2);
    }
  }
}

}  // namespace
}  // namespace gradledger::testing
