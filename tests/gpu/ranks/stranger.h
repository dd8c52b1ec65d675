// Whoever finds the door of a coordinator, with or without its secret.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "gpu/ranks/wire.h"
#include "sim/transport/door.h"

namespace gradledger::testing {

class Stranger {
 public:
  explicit Stranger(const transport::Address& address) {
    if (address.is_unix()) socket_.connect(boost::asio::local::stream_protocol::endpoint(address.path));
    else socket_.connect(boost::asio::ip::tcp::endpoint(boost::asio::ip::address_v4::loopback(), address.port));
    fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC);  // he is no relative of the ranks
  }
  // One who knows it.
  Stranger(const transport::Address& address, const std::string& secret) : socket_(transport::knock(outside(), address, secret, std::chrono::seconds(5))) {}

  void say(const void* bytes, std::size_t n) { ASSERT_EQ(send(socket_.native_handle(), bytes, n, MSG_NOSIGNAL), static_cast<ssize_t>(n)); }
  void say(const std::string& text) { say(text.data(), text.size()); }
  void say(gpu::FrameKind kind, const std::vector<std::byte>& body) {
    announce(kind, body.size());
    say(body.data(), body.size());
  }
  void announce(gpu::FrameKind kind, std::uint64_t bytes) {
    const gpu::FrameHeader header{.kind = kind, .bytes = bytes};
    say(&header, sizeof(header));
  }
  bool is_turned_away() {
    char byte;
    const ssize_t n = recv(socket_.native_handle(), &byte, 1, MSG_DONTWAIT);
    EXPECT_LE(n, 0) << "a stranger was answered";
    return n == 0 || (n < 0 && errno != EAGAIN);
  }

 private:
  // One for all, or each would keep files of his own open.
  static boost::asio::io_context& outside() {
    static boost::asio::io_context context;
    return context;
  }
  transport::Socket socket_{outside()};
};

}  // namespace gradledger::testing
