#include <poll.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/drivers/stand_in/rank.h"

namespace gradledger::stand_in {

Wire::Wire(const json& hello)
    : socket_(transport::knock(context_, *transport::Address::parse(std::getenv("GRADLEDGER_ADDRESS")), std::getenv("GRADLEDGER_TOKEN"), std::chrono::seconds(10))) {
  send(hello);
  const json answer = receive();
  if (answer["type"] != "welcome") _exit(9);
}

Wire::~Wire() = default;

void Wire::send(const json& message) {
  std::vector<std::uint8_t> frame(4);
  json::to_msgpack(message, frame);
  const std::size_t length = frame.size() - 4;
  for (int i = 0; i < 4; ++i) frame[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(length >> (24 - 8 * i));
  send_bytes(frame);
}

void Wire::send_bytes(const std::vector<std::uint8_t>& bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::write(socket_.native_handle(), bytes.data() + at, bytes.size() - at);
    if (n <= 0) return;
    at += static_cast<std::size_t>(n);
  }
}

bool Wire::read(void* into, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes;) {
    const ssize_t n = ::read(socket_.native_handle(), static_cast<char*>(into) + at, bytes - at);
    if (n <= 0) {
      closed_ = true;
      return false;
    }
    at += static_cast<std::size_t>(n);
  }
  return true;
}

json Wire::receive() {
  std::uint8_t length[4];
  if (!read(length, 4)) _exit(0);
  std::vector<std::uint8_t> body(std::size_t{length[0]} << 24 | std::size_t{length[1]} << 16 | std::size_t{length[2]} << 8 | length[3]);
  if (!read(body.data(), body.size())) _exit(0);
  return json::from_msgpack(body);
}

std::optional<json> Wire::receive_within(int milliseconds) {
  pollfd waiting{socket_.native_handle(), POLLIN, 0};
  if (poll(&waiting, 1, milliseconds) <= 0) return std::nullopt;
  char first;
  if (::recv(socket_.native_handle(), &first, 1, MSG_PEEK) <= 0) {
    closed_ = true;
    return std::nullopt;
  }
  return receive();
}

}  // namespace gradledger::stand_in
