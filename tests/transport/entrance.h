// A door for tests, those who stand before it, and those whom it has let in.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>

#include "sim/transport/door.h"
#include "sim/transport/private_folder.h"

namespace gradledger::testing {

using transport::Address;
using transport::Door;
using transport::DoorLimits;
using transport::Socket;
using namespace std::chrono_literals;

enum class Kind { unix_socket, tcp };

struct Entrance {
  explicit Entrance(DoorLimits limits = {}, Kind kind = Kind::unix_socket)
      : door(
            context, kind == Kind::tcp ? Address::tcp("127.0.0.1", 0) : Address::unix_socket(folder.path() / "door"), secret,
            [this](Socket one) { guests.push_back(std::move(one)); }, limits) {}

  // Runs the door until it is so; whether it came to that.
  template <class Done>
  bool run_until(Done&& done, std::chrono::milliseconds deadline = 10s) {
    const auto until = std::chrono::steady_clock::now() + deadline;
    while (!done() && std::chrono::steady_clock::now() < until) {
      context.restart();
      context.run_one_for(5ms);
    }
    return done();
  }

  // Connects without a word.
  Socket stranger() {
    Socket socket(outside);
    if (door.address().is_unix()) socket.connect(boost::asio::local::stream_protocol::endpoint(door.address().path));
    else socket.connect(boost::asio::ip::tcp::endpoint(boost::asio::ip::address_v4::loopback(), door.address().port));
    return socket;
  }
  Socket guest() { return transport::knock(outside, door.address(), secret, 5s); }

  transport::PrivateFolder folder;
  boost::asio::io_context context, outside;
  std::string secret = transport::make_secret();
  std::vector<Socket> guests;
  Door door;
};

inline void say(Socket& socket, const std::string& text) { boost::asio::write(socket, boost::asio::buffer(text)); }

// Whether the other side has closed; it must not have said anything.
inline bool sent_away(Socket& socket) {
  std::array<char, 16> answer{};
  const ssize_t n = recv(socket.native_handle(), answer.data(), answer.size(), MSG_DONTWAIT);
  EXPECT_LE(n, 0) << "a stranger was answered";
  return n == 0 || (n < 0 && errno != EAGAIN);
}

}  // namespace gradledger::testing
