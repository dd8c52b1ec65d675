// Who meets whom, what is refused, and who is told to go on, from what ranks ask for and nothing else.
#include <gtest/gtest.h>

#include "sim/base/contract.h"
#include "sim/producers/driver/group_results.h"
#include "tests/producers/group_support.h"

namespace gradledger::testing {
namespace {

using Kind = GroupAnswer::Kind;

class coordinator : public ::testing::Test {
 protected:
  std::vector<GroupAnswer> ask(std::uint32_t rank, GroupRequest request) { return three.ask(rank, std::move(request)); }
  // A collective of all three, which this rank waits for.
  void ask_and_wait(std::uint32_t rank, GroupRequest request) {
    const std::uint64_t id = request.id;
    EXPECT_TRUE(ask(rank, std::move(request)).empty());
    EXPECT_TRUE(three.wait(rank, id).empty());
  }

  RecordedGroup sink;
  Coordinator three{3, 1000, sink};
};

std::vector<float> sum_of(const std::vector<GroupAnswer>& answers, std::uint32_t rank) {
  for (const GroupAnswer& answer : answers)
    if (answer.rank == rank && answer.kind == Kind::result) return values_of<float>(answer.data);
  return {};
}

// ---- matching -----------------------------------------------------------------------------------------------------------------------------

TEST_F(coordinator, answers_everybody_when_the_last_member_has_asked) {
  EXPECT_TRUE(ask(2, all_reduce(0, {0, 1, 2}, {1, 2})).empty());
  EXPECT_TRUE(ask(0, all_reduce(7, {0, 1, 2}, {10, 20})).empty());
  const auto answers = ask(1, all_reduce(3, {0, 1, 2}, {100, 200}));
  ASSERT_EQ(answers.size(), 3u);
  const std::uint64_t ids[] = {7, 3, 0};
  for (std::uint32_t r = 0; r < 3; ++r) {
    EXPECT_EQ(answers[r].rank, r);
    EXPECT_EQ(answers[r].id, ids[r]);
    EXPECT_EQ(values_of<float>(answers[r].data), (std::vector<float>{111, 222}));
  }
}

TEST_F(coordinator, matches_the_calls_of_a_group_in_the_order_in_which_each_member_makes_them) {
  ask(0, all_reduce(0, {0, 1}, {1}));
  ask(0, all_reduce(1, {0, 1}, {2, 2}));
  EXPECT_EQ(sum_of(ask(1, all_reduce(0, {0, 1}, {10})), 0), (std::vector<float>{11}));
  EXPECT_EQ(sum_of(ask(1, all_reduce(1, {0, 1}, {20, 20})), 0), (std::vector<float>{22, 22}));
}

TEST_F(coordinator, keeps_groups_apart_that_share_members_or_have_other_tags) {
  ask(0, all_reduce(0, {0, 1}, {1}));
  GroupRequest tagged = all_reduce(1, {0, 1}, {2});
  tagged.tag = "experts";
  ask(0, tagged);
  ask(0, all_reduce(2, {0, 2}, {3}));
  EXPECT_EQ(sum_of(ask(2, all_reduce(0, {0, 2}, {30})), 0), (std::vector<float>{33}));
  tagged.id = 0;
  tagged.data = bytes_of(std::vector<float>{20});
  EXPECT_EQ(sum_of(ask(1, tagged), 0), (std::vector<float>{22}));
  EXPECT_EQ(sum_of(ask(1, all_reduce(1, {0, 1}, {10})), 1), (std::vector<float>{11}));
}

TEST_F(coordinator, matches_messages_by_both_ends_and_their_tag_alone) {
  const auto message = [&](std::uint64_t id, GroupCall kind, std::uint32_t peer, std::int64_t tag, std::vector<float> values) {
    GroupRequest out = request(id, {0, 1, 2}, kind, 1);
    out.peer = peer;
    out.message_tag = tag;
    if (kind == GroupCall::send) out.data = bytes_of(values);
    return out;
  };
  ask(0, message(0, GroupCall::send, 1, 5, {5}));
  ask(0, message(1, GroupCall::send, 1, 6, {6}));
  ask(0, message(2, GroupCall::send, 2, 5, {7}));
  EXPECT_TRUE(ask(1, message(0, GroupCall::receive, 2, 5, {})).empty()) << "rank 2 sent nothing";
  EXPECT_EQ(sum_of(ask(1, message(1, GroupCall::receive, 0, 6, {})), 1), (std::vector<float>{6}));
  const auto second = ask(1, message(2, GroupCall::receive, 0, 5, {}));
  ASSERT_EQ(second.size(), 2u);
  EXPECT_TRUE(second[0].rank == 0 && second[0].id == 0 && second[0].data.empty()) << "the sender hears that it was sent";
  EXPECT_EQ(sum_of(second, 1), (std::vector<float>{5}));
  EXPECT_EQ(sum_of(ask(2, message(0, GroupCall::send, 1, 5, {8})), 1), (std::vector<float>{8}));
}

TEST_F(coordinator, does_a_collective_of_one_rank_at_once) { EXPECT_EQ(sum_of(ask(1, all_reduce(0, {1}, {4})), 1), (std::vector<float>{4})); }

// ---- requests out of turn -----------------------------------------------------------------------------------------------------------------

TEST_F(coordinator, refuses_what_comes_out_of_turn_and_leaves_the_others_where_they_are) {
  ask(0, all_reduce(4, {0, 1}, {1}));
  const auto again = ask(0, all_reduce(4, {0, 1}, {1}));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].type, "CollectiveRefused");
  three.wait(0, 4);
  EXPECT_EQ(ask(0, all_reduce(5, {0, 1}, {1})).at(0).type, "CollectiveRefused") << "it waits";
  EXPECT_EQ(three.wait(0, 4).at(0).type, "CollectiveRefused") << "it waits already";
  EXPECT_EQ(three.wait(1, 0).at(0).type, "CollectiveRefused") << "never asked for";
  EXPECT_EQ(sum_of(ask(1, all_reduce(0, {0, 1}, {2})), 0), (std::vector<float>{3})) << "what was refused took no place";
  EXPECT_TRUE(three.wait(0, 4).empty()) << "the answer is on its way";
  EXPECT_FALSE(three.waits(0));
}

TEST_F(coordinator, keeps_no_more_than_its_limits_allow) {
  CoordinatorLimits limits;
  limits.open_by_rank = 2;
  limits.bytes = 100;
  limits.lines = 2;
  Coordinator small(3, 1000, sink, limits);
  EXPECT_TRUE(small.ask(0, all_reduce(0, {0, 1, 2}, std::vector<float>(20))).empty());
  EXPECT_EQ(small.ask(1, all_reduce(0, {0, 1, 2}, std::vector<float>(6))).at(0).type, "CollectiveRefused") << "104 bytes";
  EXPECT_TRUE(small.ask(1, all_reduce(1, {0, 1}, std::vector<float>(5))).empty());
  EXPECT_EQ(small.ask(2, all_reduce(0, {0, 2}, {})).at(0).type, "CollectiveRefused") << "a third group";
  EXPECT_TRUE(small.ask(0, request(1, {0, 1, 2}, GroupCall::barrier, 0)).empty());
  EXPECT_EQ(small.ask(0, request(2, {0, 1, 2}, GroupCall::barrier, 0)).at(0).type, "CollectiveRefused") << "a third one open";
  EXPECT_EQ(small.ask(0, request(3, {0}, GroupCall::barrier, 0)).at(0).type, "CollectiveRefused");
}

TEST_F(coordinator, gives_memory_back_when_it_answers) {
  CoordinatorLimits limits;
  limits.bytes = 16;
  Coordinator small(2, 1000, sink, limits);
  for (std::uint64_t id = 0; id < 10; ++id) {
    EXPECT_TRUE(small.ask(0, all_reduce(id, {0, 1}, {1, 2})).empty());
    EXPECT_EQ(small.ask(1, all_reduce(id, {0, 1}, id % 2 ? std::vector<float>{1, 2} : std::vector<float>{1})).size(), 2u) << "done, or refused";
  }
}

TEST_F(coordinator, is_not_given_what_was_not_checked) {
  GroupRequest wrong = all_reduce(0, {0, 1}, {1});
  wrong.data.pop_back();
  EXPECT_THROW(ask(0, wrong), ContractViolation);
  EXPECT_THROW(ask(2, all_reduce(0, {0, 1}, {1})), ContractViolation);
}

// ---- misfits --------------------------------------------------------------------------------------------------------------------------------

void expect_mismatch(const std::string& what, GroupRequest one, GroupRequest other) {
  SCOPED_TRACE(what);
  RecordedGroup sink;
  Coordinator two(2, 1000, sink);
  one.site = "engine.py:12 step";
  one.event = 3;
  other.event = -1;
  const std::string first = call_text(one, 2, 1000), second = call_text(other, 2, 1000);
  const auto answers = meet(two, {{1, std::move(other)}, {0, std::move(one)}});
  ASSERT_EQ(answers.size(), 2u);
  for (const auto& [rank, answer] : answers) {
    EXPECT_EQ(answer.type, "CollectiveMismatch");
    EXPECT_EQ(answer.text, "the calls that meet here differ in " + what + ": rank 0 calls " + first + ", at event 3; rank 1 calls " + second + ", before the first event");
  }
  ASSERT_EQ(sink.mismatches.size(), 1u);
  EXPECT_EQ(sink.mismatches[0].what, what);
  ASSERT_EQ(sink.mismatches[0].calls.size(), 2u);
  EXPECT_EQ(sink.mismatches[0].calls[0].text(), first);
  EXPECT_EQ(sink.mismatches[0].calls[1].text(), second);
  EXPECT_EQ(sink.mismatches[0].calls[0].event, 3u);
}

TEST(misfits, are_refused_to_all_members_with_what_each_one_calls) {
  const auto call = [](GroupCall kind, std::uint64_t numel, GroupDtype dtype = GroupDtype::fp32) { return request(0, {0, 1}, kind, numel, dtype); };
  expect_mismatch("kind", call(GroupCall::all_reduce, 4), call(GroupCall::broadcast, 4));
  expect_mismatch("kind", call(GroupCall::all_to_all, 4), call(GroupCall::barrier, 0));
  expect_mismatch("dtype", call(GroupCall::all_reduce, 4), call(GroupCall::all_reduce, 4, GroupDtype::bf16));
  expect_mismatch("size", call(GroupCall::reduce_scatter, 4), call(GroupCall::reduce_scatter, 8));
  expect_mismatch("size", call(GroupCall::all_gather, 4), call(GroupCall::all_gather, 5));
  expect_mismatch("size", call(GroupCall::all_to_all, 4), call(GroupCall::all_to_all, 2));
  GroupRequest other = call(GroupCall::all_reduce, 4);
  other.op = GroupOperator::max;
  expect_mismatch("operator", call(GroupCall::all_reduce, 4), other);
  other = call(GroupCall::all_reduce, 4);
  other.factor = 0.5;
  expect_mismatch("operator", call(GroupCall::all_reduce, 4), other);
  for (const GroupCall kind : {GroupCall::reduce, GroupCall::broadcast, GroupCall::gather, GroupCall::scatter}) {
    other = call(kind, 4);
    other.root = 1;
    expect_mismatch("root", call(kind, 4), other);
  }
  GroupRequest send = call(GroupCall::send, 4), receive = call(GroupCall::receive, 5);
  send.peer = 1;
  receive.peer = 0;
  expect_mismatch("size", send, receive);
  GroupRequest one = call(GroupCall::all_gather, 4);
  one.parts = {4, 2};
  other = call(GroupCall::all_gather, 3);
  other.parts = {4, 3};
  expect_mismatch("size", one, other);
}

TEST(misfits, are_none_where_only_what_a_kind_does_not_use_differs) {
  GroupRequest one = request(0, {0, 1}, GroupCall::all_reduce, 4), other = one;
  other.root = 1;
  other.site = "elsewhere.py:1 f";
  other.purpose = Purpose::norm;
  other.asynchronous = true;
  other.event = 5;
  EXPECT_EQ(results({one, other})[0].size(), 16u);
  one = request(0, {0, 1}, GroupCall::barrier, 0, GroupDtype::int64);
  other = request(0, {0, 1}, GroupCall::barrier, 0, GroupDtype::bytes);
  results({one, other});
}

TEST_F(coordinator, goes_on_after_a_misfit_with_the_next_call) {
  ask(0, all_reduce(0, {0, 1}, {1}));
  EXPECT_EQ(ask(1, all_reduce(0, {0, 1}, {1, 1})).size(), 2u);
  ask(0, all_reduce(1, {0, 1}, {2}));
  EXPECT_EQ(sum_of(ask(1, all_reduce(1, {0, 1}, {3})), 1), (std::vector<float>{5}));
}

// ---- what fits and cannot be done ---------------------------------------------------------------------------------------------------------

void expect_refusal(const std::string& part, GroupRequest one, GroupRequest other) {
  RecordedGroup sink;
  Coordinator two(2, 1000, sink);
  const auto answers = meet(two, {{0, std::move(one)}, {1, std::move(other)}});
  ASSERT_EQ(answers.size(), 2u) << part;
  for (const auto& [rank, answer] : answers) {
    EXPECT_EQ(answer.type, "CollectiveRefused");
    EXPECT_NE(answer.text.find(part), std::string::npos) << answer.text;
  }
  EXPECT_TRUE(sink.mismatches.empty());
}

TEST(refusals, name_what_cannot_be_done_though_all_members_ask_for_it) {
  const auto both = [](const std::string& part, const GroupRequest& call) { expect_refusal(part, call, call); };
  for (const GroupCall kind : {GroupCall::reduce_scatter, GroupCall::scatter, GroupCall::all_to_all}) both("split evenly", request(0, {0, 1}, kind, 3));
  GroupRequest call = request(0, {0, 1}, GroupCall::reduce_scatter, 4);
  call.parts = {1, 3};
  both("different sizes", call);
  call = request(0, {0, 1}, GroupCall::all_reduce, 4, GroupDtype::boolean);
  call.op = GroupOperator::avg;
  both("avg of bool", call);
  call = request(0, {0, 1}, GroupCall::reduce, 4, GroupDtype::bf16);
  call.op = GroupOperator::bxor;
  both("bxor of bf16", call);
  both("sum of bytes", request(0, {0, 1}, GroupCall::all_reduce, 4, GroupDtype::bytes));
}

TEST(refusals, name_results_that_no_message_holds) {
  GroupRequest call = request(0, {0, 1}, GroupCall::all_gather, 0, GroupDtype::int16);  // sizes alone are looked at
  const std::vector<const GroupRequest*> both{&call, &call};
  for (const GroupCall kind : {GroupCall::all_gather, GroupCall::gather}) {
    call.kind = kind;
    call.numel = driver::group_bytes_max / 4;
    EXPECT_FALSE(driver::refusal(both));
    ++call.numel;
    EXPECT_NE(driver::refusal(both).value_or("").find("larger than a message"), std::string::npos) << name_of(kind);
  }
  call.kind = GroupCall::all_to_all;
  call.numel = driver::group_bytes_max / 4 + 1;
  call.parts = {call.numel, 0};
  EXPECT_TRUE(driver::refusal(both)) << "both give the first member all";
}

}  // namespace
}  // namespace gradledger::testing
