// Who comes in at a door, who does not, and what others can do meanwhile.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "sim/transport/door.h"
#include "sim/transport/private_folder.h"

namespace gradledger::transport {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A door in a private folder, or on a port, and whoever it has let in.
struct Entrance {
  explicit Entrance(DoorLimits limits = {}, bool tcp = false)
      : door(
            context, tcp ? Address::tcp("127.0.0.1", 0) : Address::unix_socket((folder.path() / "door").string()), secret, [this](Socket one) { guests.push_back(std::move(one)); },
            limits) {}

  template <class Done>
  bool run_until(Done&& done, std::chrono::milliseconds deadline = 10s) {
    const auto until = Clock::now() + deadline;
    while (!done() && Clock::now() < until) {
      context.restart();
      context.run_one_for(5ms);
    }
    return done();
  }

  // Connects without a word.
  Socket stranger() {
    Socket socket(outside);
    if (door.address().is_unix()) socket.connect(asio::local::stream_protocol::endpoint(door.address().path));
    else socket.connect(asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), door.address().port));
    return socket;
  }

  PrivateFolder folder;
  asio::io_context context, outside;
  std::string secret = make_secret();
  std::vector<Socket> guests;
  Door door;
};

// Whether the other side has closed, without a word.
bool sent_away(Socket& socket) {
  std::array<char, 16> answer{};
  const ssize_t n = recv(socket.native_handle(), answer.data(), answer.size(), MSG_DONTWAIT);
  EXPECT_LE(n, 0) << "a stranger was answered";
  return n == 0 || (n < 0 && errno != EAGAIN);
}

class on_every_kind_of_socket : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(transport, on_every_kind_of_socket, ::testing::Values(false, true), [](const auto& info) { return info.param ? "tcp" : "unix"; });

TEST_P(on_every_kind_of_socket, who_shows_the_secret_comes_in_and_is_heard) {
  Entrance entrance({}, GetParam());
  Socket mine = knock(entrance.outside, entrance.door.address(), entrance.secret, 5s);
  asio::write(mine, asio::buffer("hello", 5));
  ASSERT_TRUE(entrance.run_until([&] { return entrance.guests.size() == 1; }));
  EXPECT_EQ(entrance.door.strangers(), 0u);
  std::array<char, 5> heard{};
  asio::read(entrance.guests[0], asio::buffer(heard));
  EXPECT_EQ(std::string(heard.data(), heard.size()), "hello") << "nothing behind the secret is lost";
  asio::write(entrance.guests[0], asio::buffer("reply", 5));
  asio::read(mine, asio::buffer(heard));
  EXPECT_EQ(std::string(heard.data(), heard.size()), "reply");
}

}  // namespace
}  // namespace gradledger::transport
