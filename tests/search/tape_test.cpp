// Edits hit the operations that they were meant for, however much the others were moved.
#include <string>

#include <gtest/gtest.h>

#include "search/mutants/blocks.h"
#include "tests/support/scenarios.h"

namespace gradledger::search {
namespace {

class Written {
 public:
  Written() : scenario_(testing::base_scenario(2, {8}, Dtype::float32)), timeline_(*make_timeline(with_a_step())), purposes_(purposes_of_buffers(scenario_)) {
    ProgramWriter w(program_);
    const Slice a = w.whole(w.declare("a", Dtype::float32, 8)), b = w.whole(w.declare("b", Dtype::float32, 8));
    for (std::uint32_t i = 0; i < 3; ++i) {
      w.fill(a.part(i, 1), i);
      w.copy(b.part(i, 1), a.part(i, 1));
    }
  }

  // The operations after an edit: f for a fill, c for a copy, with the element that it writes.
  std::string after(const TapeEdit& edit) {
    Tape tape(program_, purposes_, 0, 0);
    edit(tape, {scenario_, timeline_, nullptr, 0});
    std::string out;
    for (const Op& op : tape.ops()) out += (op.kind == OpKind::fill ? "f" : "c") + std::to_string(op.target.offset) + " ";
    return out;
  }

 private:
  const Scenario& with_a_step() {
    scenario_.script = {testing::backward(), testing::step()};
    return scenario_;
  }

  Scenario scenario_;
  Timeline timeline_;
  BufferPurposes purposes_;
  Program program_;
};

const Which copies = of_kind({OpKind::copy});

TEST(tape, hits_each_the_first_or_the_last) {
  EXPECT_EQ(Written().after(edit(always, Take::each, copies, dropped)), "f0 f1 f2 ");
  EXPECT_EQ(Written().after(edit(always, Take::first, copies, dropped)), "f0 f1 c1 f2 c2 ");
  EXPECT_EQ(Written().after(edit(always, Take::last, copies, dropped)), "f0 c0 f1 c1 f2 ");
  EXPECT_EQ(Written().after(edit(on_rank(1), Take::each, copies, dropped)), "f0 c0 f1 c1 f2 c2 ");
}

TEST(tape, moves_what_was_hit_and_nothing_else) {
  EXPECT_EQ(Written().after(edit(always, Take::each, copies, to_the_front)), "c0 c1 c2 f0 f1 f2 ");
  EXPECT_EQ(Written().after(edit(always, Take::each, copies, before_what_comes_before)), "c0 f0 c1 f1 c2 f2 ");
  EXPECT_EQ(Written().after(edit(always, Take::first, of_kind({OpKind::fill}), to_the_end)), "c0 f1 c1 f2 c2 f0 ");
}

TEST(tape, repeats_behind_what_was_hit) { EXPECT_EQ(Written().after(edit(always, Take::each, copies, repeated)), "f0 c0 c0 f1 c1 c1 f2 c2 c2 "); }

}  // namespace
}  // namespace gradledger::search
