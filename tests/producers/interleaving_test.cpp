// Ranks with scripts of their own, run in any order: what each of them is answered, and what is recorded, does not depend on the order.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "sim/base/hash.h"
#include "tests/producers/group_support.h"

namespace gradledger::testing {
namespace {

constexpr std::uint32_t script_world = 4;

struct ScriptedCall {
  GroupRequest request;
  bool waits = true;  // at once; else when the script is over
};
using Script = std::vector<ScriptedCall>;

// The same calls on all members, of random groups; then a few things that go wrong: a call left out, changed, or put before another.
std::vector<Script> drawn_scripts(std::uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<Script> out(script_world);
  const std::uint32_t calls = 2 + random.below(8);
  for (std::uint32_t c = 0; c < calls; ++c) {
    std::vector<std::uint32_t> group;
    const std::uint32_t chosen = random.below(3) == 0 ? 15 : 1 + random.below(15);
    for (std::uint32_t r = 0; r < script_world; ++r)
      if (chosen >> r & 1u) group.push_back(r);
    const GroupCall kinds[] = {GroupCall::all_reduce, GroupCall::reduce, GroupCall::all_gather, GroupCall::broadcast, GroupCall::all_to_all, GroupCall::barrier, GroupCall::send};
    GroupCall kind = kinds[random.below(7)];
    if (kind == GroupCall::send && group.size() < 2) kind = GroupCall::barrier;
    const bool asynchronous = random.below(3) == 0, waits = !asynchronous || random.below(2) == 0;
    const std::uint64_t numel = kind == GroupCall::barrier ? 0 : 12;
    for (const std::uint32_t r : group) {
      if (kind == GroupCall::send && r != group.front() && r != group.back()) continue;
      GroupRequest call = request(0, group, kind == GroupCall::send && r == group.back() ? GroupCall::receive : kind, numel);
      call.peer = r == group.front() ? group.back() : group.front();
      call.asynchronous = asynchronous;
      call.event = c;
      call.site = "loop.py:" + std::to_string(c) + " train";
      std::vector<float> values(call.data.size() / sizeof(float));
      for (float& x : values) x = static_cast<float>(random.below(1000)) / 7;
      call.data = bytes_of(values);
      out[r].push_back({std::move(call), waits});
    }
  }
  for (std::uint32_t faults = random.below(3); faults > 0; --faults) {
    Script& script = out[random.below(script_world)];
    if (script.empty()) continue;
    const std::uint32_t at = random.below(static_cast<std::uint32_t>(script.size()));
    const std::uint32_t how = random.below(3);
    if (how == 0) script.erase(script.begin() + at);
    if (how == 1) script[at].request = request(0, script[at].request.group, GroupCall::all_reduce, 5);
    if (how == 2) std::swap(script[at], script[random.below(static_cast<std::uint32_t>(script.size()))]);
  }
  for (Script& script : out)
    for (std::uint64_t id = 0; id < script.size(); ++id) script[id].request.id = id;
  return out;
}

std::string text_of(const CollectiveRecord& r) {
  return std::to_string(r.rank) + " " + std::to_string(r.event) + " " + std::to_string(r.group) + " " + std::to_string(r.sequence) + " " + r.text();
}

// What happened, in an order that does not depend on who went first.
struct Outcome {
  std::vector<std::map<std::uint64_t, std::string>> answers{script_world};  // by rank and id: kind, text and data, of several answers one after the other
  std::vector<std::vector<std::string>> collectives{script_world};          // by rank, in order
  std::vector<std::string> mismatches;                                      // sorted
  std::vector<std::string> deadlocks;
  bool operator==(const Outcome&) const = default;
};

// A rank is a framework that asks, waits at once or at the end, and gives up its script when it is refused.
class Ranks {
 public:
  Ranks(std::vector<Script> scripts, std::uint64_t seed) : scripts_(std::move(scripts)), random_(seed), states_(script_world) {}

  Outcome play() {
    while (true) {
      std::vector<std::uint32_t> able;
      for (std::uint32_t r = 0; r < script_world; ++r)
        if (!states_[r].awaited && !states_[r].idle) able.push_back(r);
      if (!able.empty()) {
        step(able[random_.below(static_cast<std::uint32_t>(able.size()))]);
        continue;
      }
      auto answers = coordinator_.settle();
      if (answers.empty()) return outcome();
      take(std::move(answers));
    }
  }

 private:
  struct State {
    std::size_t at = 0;
    std::optional<std::uint64_t> awaited;
    std::deque<std::uint64_t> unwaited;
    bool idle = false;
    bool raised = false;
  };

  void step(std::uint32_t r) {
    State& state = states_[r];
    const Script& script = scripts_[r];
    const bool over = state.raised || state.at == script.size();
    if (over && state.unwaited.empty()) {
      state.idle = true;
      return coordinator_.idle(r);
    }
    if (over) {
      const std::uint64_t id = state.unwaited.front();
      state.unwaited.pop_front();
      return wait(r, id);
    }
    const ScriptedCall& call = script[state.at++];
    take(coordinator_.ask(r, GroupRequest(call.request)));
    if (call.waits) wait(r, call.request.id);
    else state.unwaited.push_back(call.request.id);
  }

  void wait(std::uint32_t r, std::uint64_t id) {
    if (const auto known = refused_.find({r, id}); known != refused_.end()) {
      states_[r].raised |= known->second;
      return;
    }
    states_[r].awaited = id;
    take(coordinator_.wait(r, id));
  }

  void take(std::vector<GroupAnswer> answers) {
    for (const GroupAnswer& answer : answers) {
      State& state = states_[answer.rank];
      const bool go_on = answer.kind == GroupAnswer::Kind::go_on;
      const char* kinds[] = {"result", "refused", "go_on"};
      TraceHash hash;
      hash.add_bytes(std::as_bytes(std::span(answer.data)));
      outcome_.answers[answer.rank][answer.id] += std::string(kinds[static_cast<int>(answer.kind)]) + " " + answer.text + std::to_string(hash.value()) + "; ";
      if (!go_on) refused_[{answer.rank, answer.id}] = answer.kind == GroupAnswer::Kind::refused;
      else state.unwaited.push_back(answer.id);
      if (state.awaited != answer.id) continue;
      state.awaited.reset();
      if (answer.kind == GroupAnswer::Kind::refused) state.raised = true;
    }
  }

  Outcome outcome() {
    for (const CollectiveRecord& r : sink_.collectives) outcome_.collectives[r.rank].push_back(text_of(r));
    for (const MismatchRecord& m : sink_.mismatches) {
      outcome_.mismatches.push_back(m.what);
      for (const CollectiveRecord& r : m.calls) outcome_.mismatches.back() += ", " + text_of(r);
    }
    std::sort(outcome_.mismatches.begin(), outcome_.mismatches.end());
    for (const DeadlockRecord& d : sink_.deadlocks) {
      outcome_.deadlocks.emplace_back();
      for (const WaitingRank& r : d.ranks)
        outcome_.deadlocks.back() += std::to_string(r.rank) + " " + std::to_string(r.event) + " " +
                                     (r.collective ? text_of(*r.collective)
                                      : r.finished ? "finished"
                                                   : "stands") +
                                     "; ";
    }
    return outcome_;
  }

  std::vector<Script> scripts_;
  SplitMix64 random_;
  std::vector<State> states_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, bool> refused_;  // of answers that have come
  RecordedGroup sink_;
  Coordinator coordinator_{script_world, 1000, sink_};
  Outcome outcome_;
};

RC_GTEST_PROP(interleavings, give_every_rank_the_same_answers_and_the_sink_the_same_records, (std::uint64_t seed)) {
  const std::vector<Script> scripts = drawn_scripts(seed);
  const Outcome first = Ranks(scripts, 1).play();
  for (std::uint64_t order = 2; order < 8; ++order) RC_ASSERT(Ranks(scripts, order).play() == first);
}

// The property means something: of the scripts that are drawn many are done to the end, and many are not, in each of the ways.
TEST(interleavings, drawn_are_of_every_sort) {
  std::size_t done = 0, mismatched = 0, deadlocked = 0, went_on = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Outcome outcome = Ranks(drawn_scripts(seed), seed).play();
    mismatched += !outcome.mismatches.empty();
    deadlocked += !outcome.deadlocks.empty();
    done += outcome.mismatches.empty() && outcome.deadlocks.empty();
    for (const auto& answers : outcome.answers)
      went_on += std::any_of(answers.begin(), answers.end(), [](const auto& answer) { return answer.second.find("go_on") != std::string::npos; });
  }
  EXPECT_GT(done, 50u);
  EXPECT_GT(mismatched, 20u);
  EXPECT_GT(deadlocked, 20u);
  EXPECT_GT(went_on, 10u);
}

}  // namespace
}  // namespace gradledger::testing
