// Classes of ranks that call their reductions in several groups at once: who stays together, and who adds up by itself.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "sim/program/program.h"
#include "sim/scenario/layout.h"
#include "tests/support/in_words.h"
#include "tests/support/long_windows.h"
#include "tests/support/meshes.h"

namespace gradledger::testing {
namespace {

// What is the same in all engines here: they read no value.
class OfOneMesh : public Engine {
 public:
  explicit OfOneMesh(const EngineContext& c) : rank_(c.rank), shard_group_(group_of(c, "shard")), replicate_group_(group_of(c, "replicate")) {}
  bool suspended() const override { return false; }
  void resume(double, ProgramWriter&) override { FAIL() << "nothing was read"; }

 protected:
  static BufferId filled(ProgramWriter& w, const char* name, std::uint64_t numel) {
    const BufferId buffer = w.declare(name, Dtype::float32, numel);
    w.allocate(buffer);
    w.fill(w.whole(buffer), 1.0);
    return buffer;
  }
  static void all_reduce(ProgramWriter& w, std::uint32_t group, BufferId buffer) {
    w.collective({.kind = CollectiveKind::all_reduce, .group = group, .input = w.whole(buffer), .output = w.whole(buffer)});
  }

  std::uint32_t rank_, shard_group_, replicate_group_;

 private:
  static std::uint32_t group_of(const EngineContext& c, const char* name) { return group_named(*c.scenario, c.timeline->contract.groups, name, c.rank).id; }
};

class ReducesInOne final : public OfOneMesh {
 public:
  ReducesInOne(const EngineContext& c, bool in_shards) : OfOneMesh(c), group_(in_shards ? shard_group_ : replicate_group_) {}
  std::unique_ptr<Engine> clone() const override { return std::make_unique<ReducesInOne>(*this); }
  void initialise(ProgramWriter& w) override { x_ = filled(w, "x", 4); }
  void handle(const Event&, ProgramWriter& w) override { all_reduce(w, group_, x_); }
  void observe(ProgramWriter& w) override { w.observe(w.view("x", {{w.whole(x_), 0, 0}}), Role::scratch, 1, true); }

 private:
  std::uint32_t group_;
  BufferId x_ = 0;
};

// The second replica scatters its sums, so that each rank holds another share of a parameter. Later both replicas add up what they hold in place of a share.
class AddsUpShares final : public OfOneMesh {
 public:
  enum class First : std::uint8_t {
    parts,      // the first replica loses a rank while it holds no shares, so that its others close up, and the second loses one while it holds some
    holds_one,  // ranks of the first replica all hold the same elements, those that the first of them has a share of
  };

  AddsUpShares(const EngineContext& c, First first) : OfOneMesh(c), first_(first) {}
  std::unique_ptr<Engine> clone() const override { return std::make_unique<AddsUpShares>(*this); }
  void initialise(ProgramWriter& w) override {
    full_ = filled(w, "full", 16);
    share_ = filled(w, "share", 4);
  }
  void handle(const Event&, ProgramWriter& w) override {
    const std::uint32_t event = handled_++;
    if (event == 0) backward(w);
    if (event == 1 && first_ == First::parts && rank_ % 4 == 2) w.fill(w.whole(full_), 3.0);
    if (event == 2) all_reduce(w, replicate_group_, share_);
  }
  void observe(ProgramWriter& w) override { w.observe(w.view("share", {{w.whole(share_), 0, std::uint64_t{rank_ % 4} * 4}}), Role::scratch, 1, true); }

 private:
  void backward(ProgramWriter& w) {
    const bool scatters = rank_ >= 4;
    if (!scatters && first_ == First::parts) return;
    w.deposit(w.whole(full_), 0, 0, 0, 1.0, false);
    if (scatters) return w.collective({.kind = CollectiveKind::reduce_scatter, .group = shard_group_, .input = w.whole(full_), .output = w.whole(share_)});
    all_reduce(w, shard_group_, full_);
    w.copy(w.whole(share_), w.whole(full_).part(0, 4));
  }

  First first_;
  std::uint32_t handled_ = 0;
  BufferId full_ = 0, share_ = 0;
};

Scenario of_shards(const Mesh& mesh) { return of_mesh(mesh, one_long_window({{{"name", "a"}, {"numel", 16}}}, 0, mesh.replicas * mesh.shards, 2, false)); }

// Of groups in which all do the same at once, each is a class; where each rank of a class has a group of its own, the class is as large as there are groups.
TEST(ranks_of_a_class, are_in_one_group_or_each_in_another) {
  for (const bool in_shards : {true, false}) {
    Both both;
    run_both(of_shards({3, 4}), both, [in_shards](const EngineContext& c) { return std::make_unique<ReducesInOne>(c, in_shards); });
    EXPECT_EQ(both.of_brief.ranks_run, 3u) << "in shards: " << in_shards;
  }
}

// Ranks that meet then no longer lie as many places behind those that lead them.
TEST(ranks_of_a_class, whose_places_are_not_those_of_the_class_they_meet_add_up_for_themselves) {
  Both both;
  run_both(of_shards({2, 4}), both, [](const EngineContext& c) { return std::make_unique<AddsUpShares>(c, AddsUpShares::First::parts); });
}

// What the leaders hold belongs to the same elements, and what the others do does not.
TEST(ranks_of_a_class, that_hold_other_elements_on_each_place_than_those_they_meet_add_up_for_themselves) {
  Both both;
  run_both(of_shards({2, 4}), both, [](const EngineContext& c) { return std::make_unique<AddsUpShares>(c, AddsUpShares::First::holds_one); });
}

}  // namespace
}  // namespace gradledger::testing
