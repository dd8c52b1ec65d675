// Nobody can move: who is told to go on, who is refused and why, and what is recorded of it.
#include <gtest/gtest.h>

#include "tests/producers/group_support.h"

namespace gradledger::testing {
namespace {

using Kind = GroupAnswer::Kind;

class standstill : public ::testing::Test {
 protected:
  void wait_for(std::uint32_t rank, GroupRequest request) {
    const std::uint64_t id = request.id;
    EXPECT_TRUE(three.ask(rank, std::move(request)).empty());
    EXPECT_TRUE(three.wait(rank, id).empty());
    EXPECT_TRUE(three.waits(rank));
  }
  static GroupRequest at(GroupRequest request, std::int64_t event, std::string site) {
    request.event = event;
    request.site = std::move(site);
    return request;
  }
  static GroupRequest asynchronous(GroupRequest request) {
    request.asynchronous = true;
    return request;
  }

  RecordedGroup sink;
  Coordinator three{3, 1000, sink};
};

TEST_F(standstill, is_none_while_a_rank_is_running) {
  wait_for(0, all_reduce(0, {0, 1, 2}, {1}));
  wait_for(1, all_reduce(0, {0, 1, 2}, {1}));
  EXPECT_TRUE(three.settle().empty());
  EXPECT_TRUE(sink.deadlocks.empty());
  EXPECT_EQ(three.ask(2, all_reduce(0, {0, 1, 2}, {1})).size(), 3u);
  EXPECT_FALSE(three.waits(0));
}

TEST_F(standstill, refuses_what_is_waited_for_and_says_where_every_rank_stands) {
  wait_for(0, at(all_reduce(0, {0, 1, 2}, {1, 2, 3, 4}), 4, "stage3.py:7 reduce"));
  wait_for(1, at(all_reduce(0, {0, 1}, {1}), -1, ""));
  three.idle(2);
  const auto answers = three.settle();
  ASSERT_EQ(answers.size(), 2u);
  for (std::uint32_t r = 0; r < 2; ++r) {
    EXPECT_EQ(answers[r].rank, r);
    EXPECT_EQ(answers[r].type, "CollectiveDeadlock");
    EXPECT_EQ(answers[r].text,
              "nobody can move any more: rank 0 waits in all_reduce sum of 4 fp32 (gradient) at stage3.py:7 reduce, at event 4, where rank 1 and rank 2 never came; "
              "rank 1 waits in all_reduce sum of 1 fp32 among ranks 0, 1 (norm), before the first event, where rank 0 never came; rank 2 has nothing left to do");
  }
  ASSERT_EQ(sink.deadlocks.size(), 1u);
  const std::vector<WaitingRank>& ranks = sink.deadlocks[0].ranks;
  ASSERT_EQ(ranks.size(), 3u);
  EXPECT_EQ(ranks[0].event, 4u);
  EXPECT_EQ(ranks[0].collective->text(), "all_reduce sum of 4 fp32 (gradient) at stage3.py:7 reduce");
  EXPECT_EQ(ranks[1].event, 0u);
  EXPECT_TRUE(ranks[1].collective && !ranks[1].finished);
  EXPECT_TRUE(!ranks[2].collective && ranks[2].finished);
}

TEST_F(standstill, tells_the_lowest_rank_that_waits_for_an_asynchronous_call_to_go_on) {
  wait_for(0, all_reduce(0, {0, 1, 2}, {1}));
  wait_for(1, asynchronous(all_reduce(3, {1, 2}, {1})));
  wait_for(2, asynchronous(all_reduce(0, {0, 1, 2}, {1})));
  const auto answers = three.settle();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].kind == Kind::go_on && answers[0].rank == 1 && answers[0].id == 3);
  EXPECT_FALSE(three.waits(1));
  EXPECT_TRUE(three.settle().empty()) << "rank 1 runs again";
  EXPECT_TRUE(sink.deadlocks.empty());
  EXPECT_EQ(three.ask(1, all_reduce(4, {0, 1, 2}, {1})).size(), 3u) << "what it comes to next is what the others wait for";
  const auto late = three.ask(2, all_reduce(1, {1, 2}, {5}));
  ASSERT_EQ(late.size(), 2u);
  EXPECT_TRUE(late[0].rank == 1 && late[0].id == 3 && late[0].kind == Kind::result) << "the result is still due";
  EXPECT_EQ(values_of<float>(late[0].data), (std::vector<float>{6}));
}

TEST_F(standstill, tells_a_rank_to_go_on_once_for_each_call) {
  wait_for(0, asynchronous(all_reduce(0, {0, 1}, {1})));
  three.idle(1);
  three.idle(2);
  EXPECT_EQ(three.settle().at(0).kind, Kind::go_on);
  three.wait(0, 0);
  const auto second = three.settle();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].type, "CollectiveDeadlock");
  EXPECT_EQ(sink.deadlocks.size(), 1u);
}

TEST_F(standstill, refuses_members_that_have_asked_and_wait_for_something_else_or_come_later) {
  wait_for(0, all_reduce(0, {0, 1, 2}, {1}));
  three.ask(1, asynchronous(all_reduce(0, {0, 1, 2}, {1})));
  wait_for(1, all_reduce(1, {1, 2}, {1}));
  three.idle(2);
  const auto answers = three.settle();
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_TRUE(answers[1].rank == 1 && answers[1].id == 0 && answers[2].id == 1);
  for (std::uint64_t id : {0, 1}) {
    const auto late = three.ask(2, id == 0 ? all_reduce(0, {0, 1, 2}, {1}) : all_reduce(1, {1, 2}, {1}));
    ASSERT_EQ(late.size(), 1u);
    EXPECT_EQ(late[0].text, answers[0].text);
  }
  for (std::uint32_t r : {0u, 1u}) three.ask(r, all_reduce(5, {0, 1, 2}, {1}));
  EXPECT_EQ(three.ask(2, all_reduce(5, {0, 1, 2}, {1})).at(0).kind, Kind::result) << "the next call is matched with the next";
}

TEST_F(standstill, of_ranks_that_are_done_refuses_what_nobody_waited_for) {
  three.ask(0, at(asynchronous(all_reduce(0, {0, 1}, {1, 2})), 2, "ddp.py:1 hook"));
  three.running(1);
  for (std::uint32_t r = 0; r < 3; ++r) three.idle(r);
  const auto answers = three.settle();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(
      answers[0].text,
      "nobody can move any more: rank 0 has nothing left to do, and has asked for all_reduce sum of 2 fp32 among ranks 0, 1 (gradient) at ddp.py:1 hook, at event 2, where rank 1 "
      "never came; rank 1 has nothing left to do; rank 2 has nothing left to do");
  ASSERT_EQ(sink.deadlocks.size(), 1u);
  EXPECT_TRUE(sink.deadlocks[0].ranks[0].collective && !sink.deadlocks[0].ranks[1].collective);
  EXPECT_TRUE(three.settle().empty());
}

TEST_F(standstill, is_none_where_all_are_done_and_nothing_is_open) {
  for (std::uint32_t r = 0; r < 3; ++r) three.idle(r);
  EXPECT_TRUE(three.settle().empty());
  EXPECT_TRUE(sink.deadlocks.empty());
}

TEST_F(standstill, names_a_rank_that_is_gone_and_gives_it_no_answers) {
  wait_for(0, all_reduce(0, {0, 1, 2}, {1}));
  wait_for(1, all_reduce(0, {0, 1}, {1}));
  three.ask(2, all_reduce(0, {0, 2}, {1}));
  three.gone(2);
  EXPECT_TRUE(three.ask(2, all_reduce(1, {0, 1, 2}, {1})).empty() && three.wait(2, 0).empty());
  const auto answers = three.settle();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_NE(answers[0].text.find("rank 2 is gone"), std::string::npos) << answers[0].text;
  const auto met = three.ask(0, all_reduce(1, {0, 2}, {4}));
  ASSERT_EQ(met.size(), 1u) << "what it gave before is there; the answer is the other's alone";
  EXPECT_EQ(values_of<float>(met[0].data), (std::vector<float>{5}));
}

TEST_F(standstill, after_a_mismatch_is_answered_but_not_recorded) {
  three.ask(0, all_reduce(0, {0, 1}, {1}));
  three.ask(1, all_reduce(0, {0, 1}, {1, 1}));
  wait_for(0, all_reduce(1, {0, 2}, {1}));
  three.idle(1);
  three.idle(2);
  EXPECT_EQ(three.settle().at(0).type, "CollectiveDeadlock");
  EXPECT_TRUE(sink.deadlocks.empty());
  EXPECT_EQ(sink.mismatches.size(), 1u);
}

TEST_F(standstill, of_a_receiver_names_the_sender_that_never_sent) {
  GroupRequest receive = request(0, {0, 1, 2}, GroupCall::receive, 4);
  receive.peer = 2;
  wait_for(0, receive);
  three.idle(1);
  three.idle(2);
  EXPECT_NE(three.settle().at(0).text.find("rank 0 waits in receive of 4 fp32 from rank 2, at event 0, where rank 2 never came"), std::string::npos);
}

// ---- records --------------------------------------------------------------------------------------------------------------------------------

TEST_F(standstill, leaves_records_of_every_call_that_a_record_can_be_of) {
  GroupRequest call = at(request(0, {0, 1}, GroupCall::all_gather, 3, GroupDtype::int64), 2, "x.py:1 f");
  three.ask(1, GroupRequest(call));
  three.ask(1, at(all_reduce(1, {0, 1}, {1, 2}), -1, ""));
  call = request(2, {0, 1, 2}, GroupCall::reduce, 1, GroupDtype::bf16);
  call.op = GroupOperator::product;
  call.purpose = Purpose::overflow;
  three.ask(1, GroupRequest(call));
  three.ask(1, request(3, {0, 1, 2}, GroupCall::barrier, 0));
  ASSERT_EQ(sink.collectives.size(), 3u);
  const auto& [gather, reduce, product] = std::tie(sink.collectives[0], sink.collectives[1], sink.collectives[2]);
  EXPECT_TRUE(gather.rank == 1 && gather.event == 2 && gather.kind == CollectiveKind::all_gather && gather.purpose == Purpose::parameter && gather.sequence == 0);
  EXPECT_TRUE(gather.dtype == Dtype::uint8 && gather.numel == 24) << "the bytes that move";
  EXPECT_EQ(gather.text(), "all_gather of 3 int64 among ranks 0, 1 at x.py:1 f");
  EXPECT_TRUE(reduce.event == no_event && reduce.purpose == Purpose::gradient && reduce.sequence == 1 && reduce.group == gather.group);
  EXPECT_TRUE(product.op == ReduceOp::other && product.purpose == Purpose::overflow && product.group == 0 && product.sequence == 0);
  EXPECT_EQ(product.text(), "reduce product of 1 bf16 with root 0 (overflow)");
}

TEST(purposes, of_calls_that_name_none_follow_from_what_they_move) {
  GroupRequest call = request(0, {0, 1}, GroupCall::all_reduce, 1);
  EXPECT_EQ(purpose_of(call, 1000), Purpose::norm);
  EXPECT_EQ(purpose_of(call, 1), Purpose::gradient) << "the model has one element";
  call.numel = 2;
  EXPECT_EQ(purpose_of(call, 1000), Purpose::gradient);
  for (const GroupCall kind : {GroupCall::all_gather, GroupCall::broadcast, GroupCall::gather, GroupCall::scatter, GroupCall::send})
    EXPECT_EQ(purpose_of(request(0, {0, 1}, kind, 1), 1000), Purpose::parameter);
  call.purpose = Purpose::control;
  EXPECT_EQ(purpose_of(call, 1000), Purpose::control);
}

TEST(group_numbers, depend_on_ranks_and_tag_alone) {
  using driver::group_number;
  EXPECT_EQ(group_number({0, 1, 2}, "", 3), 0u);
  EXPECT_EQ(group_number({0, 1}, "a", 3), group_number({0, 1}, "a", 4));
  const std::vector<std::uint32_t> numbers{
      0, group_number({0, 1, 2}, "a", 3), group_number({0, 1}, "", 3), group_number({0, 1}, "a", 3), group_number({0, 2}, "", 3), group_number({2}, "", 3)};
  for (std::size_t i = 0; i < numbers.size(); ++i)
    for (std::size_t k = 0; k < i; ++k) EXPECT_NE(numbers[i], numbers[k]) << i << " and " << k;
}

}  // namespace
}  // namespace gradledger::testing
