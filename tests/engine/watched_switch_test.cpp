// What was looked at is known, and every switch of every framework can be told.
#include "sim/frameworks/watched_switch.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sim/frameworks/code_state.h"
#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/framework.h"
#include "sim/frameworks/history.h"
#include "sim/frameworks/megatron/behaviour.h"
#include "sim/frameworks/megatron_fsdp/behaviour.h"
#include "sim/frameworks/megatron_fsdp/v2/behaviour.h"
#include "sim/frameworks/torch/fsdp2/behaviour.h"
#include "sim/load.h"

namespace gradledger::testing {
namespace {

enum class Colour : std::uint8_t { red, green };

template <class T>
Watched<T> at_place(T value, std::size_t place) {
  Watched<T> out(value);
  out.place_at(place);
  return out;
}

// The places that reading takes down, of so many.
template <class Read>
std::vector<std::size_t> noted(std::size_t places, Read&& read) {
  const SwitchRecorder recorder;
  read();
  std::vector<std::size_t> out;
  for (std::size_t place = 0; place < places; ++place)
    if (recorder.reads().contains(static_cast<SwitchPlace>(place))) out.push_back(place);
  return out;
}

using Places = std::vector<std::size_t>;

TEST(a_switch, is_read_by_whoever_takes_its_value) {
  const auto colour = at_place(Colour::green, 3);
  const auto flag = at_place(true, 5);
  EXPECT_EQ(noted(8, [&] { EXPECT_TRUE(colour == Colour::green); }), Places{3});
  EXPECT_EQ(noted(8, [&] { EXPECT_TRUE(colour != Colour::red); }), Places{3});
  EXPECT_EQ(noted(8, [&] { EXPECT_TRUE(colour > Colour::red); }), Places{3});
  EXPECT_EQ(noted(8, [&] { EXPECT_EQ(flag ? 1 : 2, 1); }), Places{5});
  EXPECT_EQ(noted(8, [&] { EXPECT_FALSE(!flag); }), Places{5});
  EXPECT_EQ(noted(8,
                  [&] {
                    switch (colour) {
                      case Colour::red: FAIL();
                      case Colour::green: break;
                    }
                  }),
            Places{3});
  EXPECT_EQ(noted(8, [&] { EXPECT_FALSE(colour == Colour::red && flag); }), Places{3}) << "nobody looked at the other one";
}

TEST(a_switch, is_not_read_by_copies_comparisons_and_lists) {
  const auto flag = at_place(true, 5);
  EXPECT_EQ(noted(8,
                  [&] {
                    const auto copy = flag;
                    EXPECT_TRUE(copy == flag);
                    EXPECT_TRUE(flag.unnoted());
                  }),
            Places{});
  EXPECT_EQ(noted(8,
                  [&] {
                    const auto copy = flag;
                    EXPECT_TRUE(copy == true);
                  }),
            Places{5})
      << "a copy is still that switch";
}

TEST(a_switch, keeps_its_place_where_a_value_is_put_into_it) {
  auto flag = at_place(true, 5);
  flag = false;
  EXPECT_EQ(noted(8, [&] { EXPECT_FALSE(flag); }), Places{5});
}

TEST(a_switch, that_was_never_placed_counts_as_all_of_them) {
  const Watched<bool> flag(true);
  const SwitchRecorder recorder;
  EXPECT_TRUE(flag);
  EXPECT_TRUE(recorder.reads().everything());
  const std::vector<std::uint8_t> one{0, 1}, other{0, 2};
  EXPECT_TRUE(recorder.reads().agree(one, one));
  EXPECT_FALSE(recorder.reads().agree(one, other));
}

TEST(a_recorder, notes_for_those_around_it_too_and_nothing_when_it_is_gone) {
  const auto first = at_place(true, 1), second = at_place(true, 2), third = at_place(true, 3);
  EXPECT_TRUE(third) << "nobody records";
  const SwitchRecorder outer;
  EXPECT_TRUE(first);
  EXPECT_EQ(noted(8, [&] { EXPECT_TRUE(second); }), Places{2});
  EXPECT_TRUE(outer.reads().contains(1));
  EXPECT_TRUE(outer.reads().contains(2));
  EXPECT_FALSE(outer.reads().contains(3));
}

TEST(a_recorder, is_of_its_own_thread) {
  const auto flag = at_place(true, 1);
  const SwitchRecorder recorder;
  std::thread([&] { EXPECT_TRUE(flag); }).join();
  EXPECT_FALSE(recorder.reads().contains(1));
}

TEST(states, agree_where_what_was_read_has_the_same_values) {
  SwitchReads reads;
  reads.add(SwitchPlace{1});
  const std::vector<std::uint8_t> here{0, 1, 2}, elsewhere{5, 1, 7}, otherwise{0, 2, 2};
  EXPECT_TRUE(reads.agree(here, elsewhere));
  EXPECT_FALSE(reads.agree(here, otherwise));
}

// ---- what is known of one state, asked of another

CodeState state_with(std::vector<std::uint8_t> switches) { return {AsOf{"a", {}}, std::move(switches)}; }

TEST(an_outcome, is_that_of_every_state_that_agrees_in_what_was_read_for_it) {
  KnownStates<int> known;
  int worked = 0;
  const auto of = [&](std::vector<std::uint8_t> switches) {
    const auto second = at_place(switches[1], 1);
    return known.of(state_with(std::move(switches)), [&] {
      ++worked;
      return static_cast<int>(second);
    });
  };
  EXPECT_EQ(of({0, 1, 2}), 1);
  EXPECT_EQ(of({5, 1, 7}), 1);
  EXPECT_EQ(worked, 1);
  EXPECT_EQ(of({0, 2, 2}), 2);
  EXPECT_EQ(of({1, 2, 1}), 2);
  EXPECT_EQ(of({1, 1, 1}), 1);
  EXPECT_EQ(worked, 2);
}

TEST(an_outcome, that_is_used_again_was_read_for_by_whoever_uses_it) {
  KnownStates<bool> known;
  const auto flag = at_place(true, 5);
  const auto use = [&] { EXPECT_TRUE(known.of(state_with({1, 1, 1, 1, 1, 1}), [&] { return static_cast<bool>(flag); })); };
  EXPECT_EQ(noted(8, use), Places{5});
  EXPECT_EQ(noted(8, use), Places{5}) << "this time nothing is worked out";
}

TEST(an_outcome, of_a_state_of_which_nothing_is_known_is_its_own_alone) {
  KnownStates<int> known;
  int worked = 0;
  const auto of = [&](const AsOf& as_of) { return known.of(CodeState{as_of, std::nullopt}, [&] { return ++worked; }); };
  EXPECT_EQ(of({"a", {}}), 1);
  EXPECT_EQ(of({"b", {}}), 2);
  EXPECT_EQ(of({"a", {{"switch", "on"}}}), 3);
  EXPECT_EQ(of({"a", {}}), 1);
}

// ---- each field of each Behaviour, at its place in what the history says of the state

template <class Value>
void expect_read(const std::vector<std::uint8_t>& values, std::size_t place, const Watched<Value>& field, const std::string& name) {
  std::uint8_t value = 0;
  EXPECT_EQ(noted(values.size(), [&] { value = static_cast<std::uint8_t>(static_cast<Value>(field)); }), Places{place}) << name;
  EXPECT_EQ(values[place], value) << name;
}

std::vector<std::uint8_t> values_at(const char* framework, const std::string& point) { return *framework_named(framework)->history()->values_of(AsOf{point, {}}); }

TEST(every_switch, of_deepspeed_lies_where_its_history_has_it) {
  for (const std::string& point : framework_named("deepspeed")->history()->points()) {
    const Behaviour behaviour = resolve_behaviour(AsOf{point, {}}).value();
    const std::vector<std::uint8_t> values = values_at("deepspeed", point);
    std::size_t place = 0;
#define SWITCH(Type, field, meaning, ...) expect_read(values, place++, behaviour.field, #field);
#include "sim/frameworks/deepspeed/switches.def"
    EXPECT_EQ(values.size(), place + changes().size());
  }
}

template <class Infos, class Behaviour>
void expect_flags_read(const char* framework, const Infos& infos, const std::string& point, const Behaviour& behaviour) {
  const std::vector<std::uint8_t> values = values_at(framework, point);
  ASSERT_EQ(values.size(), infos.size());
  for (std::size_t i = 0; i < infos.size(); ++i) expect_read(values, i, behaviour.*infos[i].member, std::string(infos[i].name));
}

TEST(every_switch, of_the_frameworks_with_flags_lies_where_its_history_has_it) {
  for (const std::string& point : framework_named("megatron")->history()->points())
    expect_flags_read("megatron", megatron::switches(), point, megatron::behaviour_of(AsOf{point, {}}).value());
  for (const std::string& point : framework_named("megatron-fsdp")->history()->points())
    expect_flags_read("megatron-fsdp", megatron_fsdp::switches(), point, megatron_fsdp::behaviour_of(AsOf{point, {}}).value());
  for (const std::string& point : framework_named("megatron-fsdp-v2")->history()->points())
    expect_flags_read("megatron-fsdp-v2", megatron_fsdp::v2::switches(), point, megatron_fsdp::v2::behaviour_of(AsOf{point, {}}).value());
}

TEST(every_switch, of_fully_shard_lies_where_its_history_has_it) {
  for (const std::string& point : framework_named("fsdp2")->history()->points()) {
    const torch::fully_shard::Behaviour behaviour = torch::fully_shard::behaviour_at(AsOf{point, {}}).value();
    const std::vector<std::uint8_t> values = values_at("fsdp2", point);
    expect_read(values, 0, behaviour.final_reduction, "final_reduction");
    expect_read(values, 1, behaviour.all_reduced_memory, "all_reduced_memory");
    expect_read(values, 2, behaviour.divide_factor, "divide_factor");
    expect_read(values, 3, behaviour.offload_event, "offload_event");
    expect_read(values, 4, behaviour.one_rank_shard, "one_rank_shard");
    expect_read(values, 5, behaviour.aborted_module, "aborted_module");
  }
}

Scenario of_framework(const std::string& framework, const std::string& as_of, const std::string& config) {
  const std::string text = R"({"name": "a", "world_size": 1, "parameters": [{"name": "w", "numel": 4}], "engine": {"framework": ")" + framework + R"(", "as_of": ")" + as_of +
                           R"(", "config": )" + config + R"(, "optimizer": {"type": "SGD", "lr": 0.1}}, "script": [{"backward": {}}, {"step": {}}]})";
  auto read = read_scenario(text, ".");
  if (!read) ADD_FAILURE() << read.error().text();
  return read.ok() ? std::move(read).value() : Scenario{};
}

// What a default of DeepSpeed's configuration, or an option of PyTorch's, came with is asked of the release and not of a switch.
TEST(what_a_release_documents, is_read_as_switches_are) {
  const std::vector<std::uint8_t> before = values_at("deepspeed", "0.18.9"), since = values_at("deepspeed", "head");
  const auto differ = [&](const std::string& config) {
    const SwitchRecorder recorder;
    const Scenario scenario = of_framework("deepspeed", "0.18.9", config);
    EXPECT_TRUE(make_timeline(scenario).ok());
    return std::pair(!recorder.reads().agree(before, since), gradient_clipping_of(scenario));
  };
  EXPECT_EQ(differ(R"({"zero_optimization": {"stage": 0}})"), std::pair(true, 0.0)) << "from DeepSpeed#8068 on the default clips";
  EXPECT_EQ(gradient_clipping_of(of_framework("deepspeed", "head", R"({"zero_optimization": {"stage": 0}})")), 1.0);
  const SwitchRecorder recorder;
  of_framework("fsdp2", "2.8.0", R"({"force_sum_reduction_for_comms": true})");
  EXPECT_FALSE(recorder.reads().agree(values_at("fsdp2", "2.8.0"), values_at("fsdp2", "2.7.0"))) << "which has no such option";
}

}  // namespace
}  // namespace gradledger::testing
