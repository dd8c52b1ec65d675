// A coordinator among others than its ranks: strangers are not heard, and who has the secret of the run says no more than it is asked for.
#include <sys/resource.h>

#include <list>
#include <thread>

#include <boost/asio/local/connect_pair.hpp>

#include "gpu/ranks/connection.h"
#include "tests/gpu/collectives/commands.h"
#include "tests/gpu/ranks/standin.h"
#include "tests/gpu/ranks/stranger.h"

namespace gradledger::testing {
namespace {

using gpu::FrameHeader;
using gpu::FrameKind;
using gpu::Packer;

// Starts nothing: ranks come by themselves.
class NoLauncher final : public gpu::RankLauncher {
 public:
  void start(const gpu::RankAddress&) override {}
  std::optional<std::string> ended(std::uint32_t) override { return std::nullopt; }
  void end_all() override {}
};

// What the run breaks off with; empty: it begins.
std::string said_at_the_beginning(Devices& devices, std::uint32_t ranks = 1) {
  try {
    devices.begin(ranks);
  } catch (const DeviceFailure& failure) {
    return failure.what();
  }
  return "";
}

// What a rank fetches, once and again, while others do something.
std::vector<std::byte> fetch(Devices& devices, std::uint32_t numel) {
  std::vector<std::byte> out;
  const Operand operand{0, 0, numel, Dtype::float32};
  devices.fetch(0, Stream::compute, {&operand, 1}, out);
  return out;
}

const std::vector<std::byte> his_failure = Packer().add(std::uint32_t{0}).add_text("a stranger's words").take();

std::vector<std::byte> hello_of_another_version() {
  gpu::Hello hello;
  hello.version += 1;
  return hello.packed();
}

class a_coordinator : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<gpu::ProcessDevices> devices(std::chrono::milliseconds deadline = std::chrono::seconds(60)) {
    setenv("GRADLEDGER_NCCL", STANDIN_NCCL, 1);
    return std::make_unique<gpu::ProcessDevices>(gpu::spawning_launcher({STANDIN_RANK}), listening(), deadline);
  }
  gpu::Listening listening() {
    gpu::Listening out{.secret = secret};
    if (GetParam()) out.at = transport::Address::tcp("127.0.0.1", 0);
    return out;
  }
  const std::string secret = transport::make_secret();
};
INSTANTIATE_TEST_SUITE_P(ranks, a_coordinator, ::testing::Values(false, true), [](const auto& info) { return info.param ? "tcp" : "unix"; });

TEST_P(a_coordinator, does_not_hear_what_a_stranger_says_of_failures_and_versions) {
  for (const bool behind_a_wrong_secret : {false, true}) {
    const auto ranks = devices();
    Stranger failing(ranks->address()), of_another_version(ranks->address());
    if (behind_a_wrong_secret)
      for (Stranger* one : {&failing, &of_another_version}) one->say(transport::make_secret());
    failing.say(FrameKind::failure, his_failure);
    of_another_version.say(FrameKind::hello, hello_of_another_version());
    EXPECT_EQ(said_at_the_beginning(*ranks), "");
    ranks->enqueue(0, command(OpKind::allocate, 0, 4, Dtype::float32), {});
    EXPECT_EQ(fetch(*ranks, 4), std::vector<std::byte>(16, std::byte{0xFF}));
  }
}

TEST_P(a_coordinator, takes_ranks_in_after_strangers_have_used_up_all_files) {
  const auto ranks = devices();
  std::list<Stranger> strangers;
  for (int i = 0; i < 30; ++i) strangers.emplace_back(ranks->address());
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{64, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  const std::string said = said_at_the_beginning(*ranks);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(said, "");
}

TEST_P(a_coordinator, is_not_disturbed_by_rubbish_at_its_door) {
  const auto ranks = devices();
  Stranger stranger(ranks->address());
  stranger.say(std::string(4096, '\xEE'));
  EXPECT_EQ(said_at_the_beginning(*ranks, 2), "");
  ranks->enqueue(0, command(OpKind::allocate, 0, 4, Dtype::float32), {});
  for (int i = 0; i < 200 && !stranger.is_turned_away(); ++i) fetch(*ranks, 4);
  EXPECT_TRUE(stranger.is_turned_away());
}

TEST_P(a_coordinator, turns_away_a_rank_of_another_run_and_one_that_never_comes_is_named) {
  gpu::ProcessDevices ranks(std::make_unique<NoLauncher>(), listening(), std::chrono::milliseconds(1500));
  standin_library();
  std::optional<std::string> turned_away;
  std::thread other([&] {
    turned_away = gpu::serve_rank(
        {ranks.address(), 0, transport::make_secret()}, [](std::uint32_t) { return std::make_unique<StandinDevice>(); }, std::chrono::seconds(5));
  });
  EXPECT_EQ(said_at_the_beginning(ranks), "rank 0: did not connect within 1500 ms");
  other.join();
  EXPECT_EQ(turned_away, "the coordinator did not let this rank in: it is of another run, which has another secret, or it is gone");
}

// ---- who has the secret ---------------------------------------------------------------------------------------------------------------------

TEST_P(a_coordinator, ends_the_run_where_a_rank_is_of_another_version_or_says_why_it_fails) {
  gpu::ProcessDevices of_version(std::make_unique<NoLauncher>(), listening(), std::chrono::seconds(20));
  Stranger newer(of_version.address(), secret);
  newer.say(FrameKind::hello, hello_of_another_version());
  EXPECT_EQ(said_at_the_beginning(of_version), "a rank is run by another version of gradledger; expected the same program everywhere");

  gpu::ProcessDevices of_failure(std::make_unique<NoLauncher>(), listening(), std::chrono::seconds(20));
  Stranger failing(of_failure.address(), secret);
  failing.say(FrameKind::failure, Packer().add(std::uint32_t{0}).add_text("no such device").take());
  EXPECT_EQ(said_at_the_beginning(of_failure), "rank 0: no such device");

  gpu::ProcessDevices of_brevity(std::make_unique<NoLauncher>(), listening(), std::chrono::seconds(20));
  Stranger brief(of_brevity.address(), secret);
  brief.say(FrameKind::failure, {});
  EXPECT_EQ(said_at_the_beginning(of_brevity), "failed, and does not say why");
}

// A rank that is there, and what is said of it when it has said one thing more.
std::string after(const gpu::Listening& listening, const std::string& secret, FrameKind kind, std::uint64_t announced_bytes) {
  gpu::ProcessDevices ranks(std::make_unique<NoLauncher>(), listening, std::chrono::seconds(20));
  Stranger rank(ranks.address(), secret);
  rank.say(FrameKind::hello, gpu::Hello().packed());
  EXPECT_EQ(said_at_the_beginning(ranks), "");
  rank.announce(kind, announced_bytes);
  try {
    fetch(ranks, 1000);
  } catch (const DeviceFailure& failure) {
    return failure.what();
  }
  return "";
}

TEST_P(a_coordinator, takes_nothing_of_a_rank_that_it_did_not_ask_for) {
  const auto said = [&](FrameKind kind, std::uint64_t bytes) { return after(listening(), secret, kind, bytes); };
  EXPECT_EQ(said(FrameKind::hello, 10), "rank 0: says twice who it is");
  EXPECT_EQ(said(FrameKind::failure, FrameHeader::words_bytes_max + 1), "rank 0: says more of its failure than there is to say");
  EXPECT_EQ(said(FrameKind::finish, 0), "rank 0: says what only the coordinator says");
  EXPECT_EQ(said(FrameKind::reply, FrameHeader::frame_bytes_max + 1), "rank 0: does not speak this program's language");
  const std::string early = said(FrameKind::reply, 4001);  // before the question or after it: that depends on who is faster
  EXPECT_TRUE(early == "rank 0: answers what it was not asked" || early == "rank 0: answers with more than it was asked for") << early;
}

TEST(a_connection, takes_each_reply_up_to_the_size_that_was_asked_for) {
  boost::asio::io_context context;
  transport::Socket near(context), far(context);
  boost::asio::local::stream_protocol::socket one(context), other(context);
  boost::asio::local::connect_pair(one, other);
  near = std::move(one);
  far = std::move(other);
  const auto connection = std::make_shared<gpu::Connection>(std::move(near));
  connection->await(100);
  connection->await(0);
  connection->receive();
  const auto say = [&](FrameKind kind, std::uint64_t announced, std::size_t sent) {
    const FrameHeader header{.kind = kind, .bytes = announced};
    ASSERT_EQ(send(far.native_handle(), &header, sizeof(header), MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(header)));
    const std::string body(sent, 'x');
    ASSERT_EQ(send(far.native_handle(), body.data(), sent, MSG_NOSIGNAL), static_cast<ssize_t>(sent));
    context.restart();
    context.run_for(std::chrono::milliseconds(20));
  };
  say(FrameKind::reply, 100, 100);
  EXPECT_EQ(connection->inbox.size(), 1u);
  EXPECT_FALSE(connection->lost());
  say(FrameKind::reply, 1, 1);
  EXPECT_TRUE(connection->lost());
  EXPECT_EQ(connection->reason(), "answers with more than it was asked for");
  EXPECT_EQ(connection->inbox.size(), 1u);
}

}  // namespace
}  // namespace gradledger::testing
