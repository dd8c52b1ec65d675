// Messages of the process group, right ones and hostile ones.
#include <gtest/gtest.h>

#include "sim/producers/driver/group_messages.h"
#include "tests/producers/group_support.h"

namespace gradledger::testing {
namespace {

using driver::group_message;
using driver::group_request;
using nlohmann::json;

// An all_reduce of two bf16 by rank 1 of 4, as it comes off the wire.
json right() {
  return {{"type", "collective"}, {"id", 3},   {"group", {1, 2}},    {"tag", "t"},        {"kind", "all_reduce"}, {"operator", "sum"},    {"dtype", "bf16"},
          {"numel", 2},           {"root", 0}, {"site", "a.py:1 f"}, {"purpose", "norm"}, {"event", 5},           {"asynchronous", true}, {"data", json::binary({1, 2, 3, 4})}};
}

json with(json changes, json message = right()) {
  for (auto& [key, value] : changes.items())
    if (value.is_null()) message.erase(key);
    else message[key] = value;
  return message;
}

Result<GroupRequest> read(const json& message) { return group_request(json::from_msgpack(json::to_msgpack(message)), 1, 4, 6); }

void expect_fault(const std::string& where, const json& message) {
  const auto request = read(message);
  ASSERT_FALSE(request.ok()) << message.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 300);
  EXPECT_EQ(request.error().where, where) << request.error().text();
}

TEST(group_messages, are_read_as_they_were_meant) {
  const auto request = read(right());
  ASSERT_TRUE(request.ok()) << request.error().text();
  EXPECT_EQ(request->id, 3u);
  EXPECT_EQ(request->group, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(request->tag, "t");
  EXPECT_TRUE(request->kind == GroupCall::all_reduce && request->op == GroupOperator::sum && request->dtype == GroupDtype::bf16);
  EXPECT_EQ(request->numel, 2u);
  EXPECT_EQ(request->site, "a.py:1 f");
  EXPECT_EQ(request->purpose, Purpose::norm);
  EXPECT_EQ(request->event, 5);
  EXPECT_TRUE(request->asynchronous);
  EXPECT_EQ(request->data, (Bytes{1, 2, 3, 4}));
}

TEST(group_messages, may_leave_out_what_a_kind_has_not_and_name_no_purpose) {
  const auto request = read(with({{"root", nullptr}, {"purpose", ""}, {"event", -1}}));
  ASSERT_TRUE(request.ok()) << request.error().text();
  EXPECT_FALSE(request->purpose);
  EXPECT_EQ(request->event, -1);
}

TEST(group_messages, of_every_kind_are_read) {
  for (int kind = 0; kind < driver::group_calls; ++kind) {
    const auto call = static_cast<GroupCall>(kind);
    json message = with({{"kind", name_of(call)}, {"operator", reduces(call) ? "max" : ""}, {"root", 2}});
    if (is_between_two(call)) message.update({{"peer", 2}, {"message_tag", -7}});
    if (may_have_parts(call)) message["parts"] = call == GroupCall::all_gather ? json{2, 9} : json{2, 0};
    if (call == GroupCall::barrier) message["numel"] = 0;
    if (call == GroupCall::barrier || call == GroupCall::receive) message["data"] = json::binary({});
    const auto request = read(message);
    ASSERT_TRUE(request.ok()) << name_of(call) << ": " << request.error().text();
    EXPECT_EQ(request->kind, call);
    EXPECT_TRUE(!is_between_two(call) || (request->peer == 2 && request->message_tag == -7));
    EXPECT_EQ(request->parts.size(), may_have_parts(call) ? 2u : 0u);
  }
}

TEST(group_messages, of_every_dtype_and_operator_are_read) {
  for (int i = 0; i < driver::group_dtypes; ++i) {
    const auto dtype = static_cast<GroupDtype>(i);
    const auto request = read(with({{"dtype", name_of(dtype)}, {"data", json::binary(Bytes(2 * size_of(dtype)))}}));
    EXPECT_TRUE(request.ok() && request->dtype == dtype) << name_of(dtype);
  }
  for (int i = 1; i < driver::group_operators; ++i) EXPECT_EQ(read(with({{"operator", name_of(static_cast<GroupOperator>(i))}}))->op, static_cast<GroupOperator>(i));
}

TEST(group_messages, of_a_sum_of_floats_may_have_a_factor) {
  EXPECT_EQ(read(right())->factor, 1);
  const auto request = read(with({{"factor", 0.25}}));
  ASSERT_TRUE(request.ok()) << request.error().text();
  EXPECT_EQ(request->factor, 0.25);
  EXPECT_EQ(driver::call_text(*request, 2, 9).substr(0, 37), "all_reduce sum times 0.25 of 2 bf16 (");
  for (const json& wrong : {json("x"), json(true), json(std::numeric_limits<double>::infinity())}) expect_fault("/factor", with({{"factor", wrong}}));
  expect_fault("/factor", with({{"factor", 0.25}, {"operator", "avg"}}));
  expect_fault("/factor", with({{"factor", 0.25}, {"dtype", "int16"}}));
}

TEST(hostile_group_messages, that_miss_a_key_or_have_another_are_refused_with_its_name) {
  const json message = right();
  for (const auto& [key, value] : message.items())
    if (key != "root") expect_fault("/" + key, with({{key, nullptr}}));
  expect_fault("/dytpe", with({{"dytpe", "fp32"}}));
  expect_fault("/peer", with({{"peer", 2}}));
  expect_fault("/message_tag", with({{"message_tag", 2}}));
  expect_fault("/root", with({{"kind", "reduce"}, {"root", nullptr}}));
  expect_fault("/peer", with({{"kind", "send"}, {"operator", ""}, {"message_tag", 0}}));
  for (const json& other : {json(), json(7), json::array({right()}), json("collective")}) EXPECT_FALSE(group_request(json(other), 1, 4, 6).ok()) << other;
}

TEST(hostile_group_messages, whose_values_have_another_type_are_refused) {
  const json other_types[] = {true, 1.5, "x", json::array(), json::object(), json::binary({1}), -2, std::numeric_limits<std::uint64_t>::max()};
  std::size_t refused = 0;
  const json message = right();
  for (const auto& [key, value] : message.items())
    for (const json& other : other_types) {
      if (other.type() == value.type() && !other.is_number()) continue;  // "x" for another text, and the like
      if (key == "asynchronous" && other.is_boolean()) continue;
      expect_fault("/" + key, with({{key, other}}));
      ++refused;
    }
  EXPECT_GT(refused, 80u);
}

TEST(hostile_group_messages, whose_values_are_out_of_range_are_refused) {
  const std::uint64_t huge = 1ull << 62;
  for (const json& group : {json::array(), json{2, 1}, json{1, 1}, json{2, 3}, json{1, 4}, json{1, -1}, json{1, huge}, json{1, "2"}, json{1, 2.0}, json{0, 1, 2, 3, 3}})
    expect_fault("/group", with({{"group", group}}));
  for (const json& number : {json(huge), json((1ull << 30) / 2 + 1), json(-1)}) expect_fault("/numel", with({{"numel", number}}));
  expect_fault("/data", with({{"numel", (1ull << 29) - (64 << 10)}}));
  for (const json& event : {json(6), json(-2), json(huge)}) expect_fault("/event", with({{"event", event}}));
  expect_fault("/kind", with({{"kind", "all_reduc"}}));
  expect_fault("/operator", with({{"operator", "premul"}}));
  expect_fault("/dtype", with({{"dtype", "fp8"}}));
  expect_fault("/purpose", with({{"purpose", "gradients"}}));
  expect_fault("/type", with({{"type", "colective"}}));
  expect_fault("/tag", with({{"tag", std::string(257, 'a')}}));
  expect_fault("/site", with({{"site", std::string(1025, 'a')}}));
  expect_fault("/site", with({{"site", "\xff\xfe"}}));
  expect_fault("/id", with({{"id", std::numeric_limits<std::uint64_t>::max()}}));
}

TEST(hostile_group_messages, whose_values_do_not_fit_each_other_are_refused) {
  expect_fault("/data", with({{"data", json::binary({1, 2, 3})}}));
  expect_fault("/data", with({{"data", json::binary({})}}));
  expect_fault("/data", with({{"dtype", "fp32"}}));
  expect_fault("/operator", with({{"operator", ""}}));
  expect_fault("/operator", with({{"kind", "broadcast"}, {"root", 1}}));
  const json broadcast = with({{"kind", "broadcast"}, {"operator", ""}, {"root", 2}});
  expect_fault("/root", with({{"root", 0}}, broadcast));
  expect_fault("/root", with({{"root", 4}}, broadcast));
  expect_fault("/data", with({{"data", json::binary({1})}}, broadcast));
  expect_fault("/data", with({{"root", 1}, {"data", json::binary({})}}, broadcast));
  EXPECT_TRUE(read(with({{"data", json::binary({})}}, broadcast)).ok()) << "rank 2 gives the data";
  expect_fault("/numel", with({{"kind", "barrier"}, {"operator", ""}}));
  for (const std::uint32_t peer : {0u, 1u, 4u}) expect_fault("/peer", with({{"kind", "send"}, {"operator", ""}, {"peer", peer}, {"message_tag", 0}}));
  expect_fault("/data", with({{"kind", "receive"}, {"operator", ""}, {"peer", 2}, {"message_tag", 0}}));
}

TEST(hostile_group_messages, whose_parts_do_not_add_up_are_refused) {
  const std::uint64_t half = 1ull << 63;
  for (const json& parts : {json::array(), json{2}, json{1, 2}, json{1, 0, 1}, json{3, -1}, json{half, half}, json{2, "0"}, json(2)}) {
    expect_fault("/parts", with({{"parts", parts}, {"kind", "all_to_all"}, {"operator", ""}}));
    expect_fault("/parts", with({{"parts", parts}, {"kind", "reduce_scatter"}}));
  }
  expect_fault("/parts", with({{"parts", {1, 1}}}));
  expect_fault("/parts", with({{"parts", {1, 2}}, {"kind", "all_gather"}, {"operator", ""}}));
  expect_fault("/parts", with({{"parts", {2, 1ull << 40}}, {"kind", "all_gather"}, {"operator", ""}}));
}

TEST(group_messages, of_waits_name_an_id_alone) {
  const auto wait = [](const json& message) { return driver::group_wait(message); };
  EXPECT_EQ(*wait({{"type", "wait"}, {"id", 7}}), 7u);
  for (const json& message :
       {json{{"type", "wait"}}, json{{"type", "wait"}, {"id", -1}}, json{{"type", "wait"}, {"id", 1}, {"rank", 0}}, json{{"type", "done"}, {"id", 1}}, json()})
    EXPECT_FALSE(wait(message).ok()) << message;
}

TEST(group_messages, of_answers_are_those_of_the_protocol) {
  using Kind = GroupAnswer::Kind;
  EXPECT_EQ(group_message({1, 7, Kind::result, {1, 2}, "", ""}), (json{{"type", "result"}, {"id", 7}, {"data", json::binary({1, 2})}}));
  EXPECT_EQ(group_message({1, 7, Kind::go_on, {}, "", ""}), (json{{"type", "go_on"}, {"id", 7}}));
  EXPECT_EQ(group_message({1, 7, Kind::refused, {}, "CollectiveRefused", "no"}),
            (json{{"type", "refused"}, {"id", 7}, {"error", {{"type", "CollectiveRefused"}, {"text", "no"}}}}));
}

}  // namespace
}  // namespace gradledger::testing
