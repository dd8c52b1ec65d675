// What comes over the wire is not trusted to be what this program sends: short frames, frames out of place, strangers at the door.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "gpu/ranks/rank_server.h"
#include "tests/gpu/collectives/commands.h"
#include "tests/gpu/ranks/standin.h"

namespace gradledger::testing {
namespace {

using gpu::Frame;
using gpu::FrameKind;
using gpu::Packer;
using gpu::Unpacker;

TEST(a_frame, gives_back_what_was_packed_in_order) {
  const std::vector<double> values{1.5, -2.5};
  const std::vector<std::byte> bytes = Packer().add(std::uint32_t{7}).add_text("rank").add_all(std::span<const double>(values)).take();
  Unpacker in(bytes);
  EXPECT_EQ(in.get<std::uint32_t>(), 7u);
  EXPECT_EQ(in.get_text(), "rank");
  EXPECT_EQ(in.get_all<double>(), values);
  EXPECT_THROW(in.get<char>(), gpu::WireError);
}

TEST(a_frame, that_is_short_at_any_byte_or_announces_too_much_is_refused) {
  const std::vector<double> values{1, 2, 3};
  const std::vector<std::byte> whole = Packer().add(command(OpKind::deposit, 0, 3, Dtype::float32)).add_all(std::span<const double>(values)).take();
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
    const auto read = [&] {
      Unpacker in(part);
      in.get<Command>();
      in.get_all<double>();
    };
    EXPECT_THROW(read(), gpu::WireError) << n << " bytes";
  }
  const std::vector<std::byte> boast = Packer().add(std::uint64_t{1} << 62).take();
  Unpacker in(boast);
  EXPECT_THROW(in.get_all<double>(), gpu::WireError);
}

TEST(a_hello, of_another_version_is_refused) {
  gpu::Hello hello;
  hello.version += 1;
  const std::vector<std::byte> bytes = hello.packed();
  EXPECT_THROW(gpu::Hello::unpacked(bytes), gpu::WireError);
}

TEST(a_rank_server, refuses_what_only_ranks_say_and_frames_that_are_short) {
  StandinDevice device;
  gpu::RankServer server(device, standin_library(), 0);
  for (const FrameKind kind : {FrameKind::hello, FrameKind::reply, FrameKind::failure}) EXPECT_THROW(server.handle({kind, {}}), gpu::WireError);
  for (const FrameKind kind : {FrameKind::enqueue, FrameKind::fetch, FrameKind::join, FrameKind::collective}) EXPECT_THROW(server.handle({kind, {}}), gpu::WireError);
  EXPECT_FALSE(server.finished());
  EXPECT_TRUE(server.handle({FrameKind::finish, {}}));
  EXPECT_TRUE(server.finished());
}

// Starts nothing: ranks come by themselves.
class NoLauncher final : public gpu::RankLauncher {
 public:
  void start(const gpu::RankAddress&) override {}
  std::optional<std::string> ended(std::uint32_t) override { return std::nullopt; }
  void end_all() override {}
};

TEST(a_coordinator, turns_away_a_rank_of_another_run_and_one_that_never_comes_is_named) {
  gpu::ProcessDevices devices(std::make_unique<NoLauncher>(), {.token = "right"}, std::chrono::milliseconds(1500));
  standin_library();
  std::optional<std::string> turned_away;
  std::thread stranger([&] {
    turned_away = gpu::serve_rank(
        {"127.0.0.1", devices.port(), 0, "wrong"}, [](std::uint32_t) { return std::make_unique<StandinDevice>(); }, std::chrono::seconds(5));
  });
  try {
    devices.begin(1);
    ADD_FAILURE() << "begun without its rank";
  } catch (const DeviceFailure& failure) {
    EXPECT_STREQ(failure.what(), "rank 0: did not connect within 1500 ms");
  }
  stranger.join();
  EXPECT_EQ(turned_away, "the coordinator is gone");
}

// Whoever finds the port.
class Stranger {
 public:
  explicit Stranger(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Stranger() { close(socket_); }

  void say(const void* bytes, std::size_t n) { ASSERT_EQ(send(socket_, bytes, n, MSG_NOSIGNAL), static_cast<ssize_t>(n)); }
  bool is_turned_away() {
    char byte;
    return recv(socket_, &byte, 1, MSG_DONTWAIT) == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }

 private:
  int socket_ = socket(AF_INET, SOCK_STREAM, 0);
};

TEST(a_coordinator, takes_large_frames_from_its_ranks_and_neither_large_nor_many_ones_from_a_stranger) {
  const auto devices = process_devices();
  devices->begin(1);
  const std::uint32_t numel = gpu::FrameHeader::newcomer_bytes_max;
  devices->enqueue(0, command(OpKind::allocate, 0, numel, Dtype::float32), {});
  const gpu::FrameHeader large{.bytes = gpu::FrameHeader::newcomer_bytes_max + 1}, empty;
  Stranger boaster(devices->port()), babbler(devices->port()), silent(devices->port());
  boaster.say(&large, sizeof(large));
  for (std::size_t i = 0; i <= gpu::FrameHeader::newcomer_frames_max; ++i) babbler.say(&empty, sizeof(empty));
  std::vector<std::byte> out;
  const Operand operand{0, 0, numel, Dtype::float32};
  for (int i = 0; i < 200 && !(boaster.is_turned_away() && babbler.is_turned_away()); ++i) devices->fetch(0, Stream::compute, {&operand, 1}, out);
  EXPECT_EQ(out, std::vector<std::byte>(4 * numel, std::byte{0xFF}));
  EXPECT_TRUE(boaster.is_turned_away());
  EXPECT_TRUE(babbler.is_turned_away());
  EXPECT_FALSE(silent.is_turned_away()) << "has said nothing wrong so far";
}

TEST(a_coordinator, is_not_disturbed_by_rubbish_at_its_port) {
  const auto devices = process_devices();
  Stranger stranger(devices->port());
  const std::string rubbish(4096, '\xEE');
  stranger.say(rubbish.data(), rubbish.size());
  devices->begin(2);
  devices->enqueue(1, command(OpKind::allocate, 0, 4, Dtype::float32), {});
  std::vector<std::byte> out;
  const Operand operand{0, 0, 4, Dtype::float32};
  devices->fetch(1, Stream::compute, {&operand, 1}, out);
  EXPECT_EQ(out, std::vector<std::byte>(16, std::byte{0xFF}));
}

}  // namespace
}  // namespace gradledger::testing
