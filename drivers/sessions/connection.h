// Frames of MessagePack over a socket: docs/driver-protocol.md, "Frames". Works while its context is run, in one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/transport/door.h"

namespace gradledger::driver {

inline constexpr std::size_t frame_bytes_max = std::size_t{1} << 30;
inline constexpr std::size_t hello_bytes_max = std::size_t{64} << 10;

// Of one frame's body. Errors: no MessagePack, something behind it, or too deep.
Result<nlohmann::json> message_from(const std::vector<std::uint8_t>& body);

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  explicit Connection(transport::Socket socket) : socket_(std::move(socket)) {}

  // taken: each message, in order. lost: once, when nothing more will come; why is empty where the other side closed between two frames.
  void start(std::function<void(nlohmann::json)> taken, std::function<void(std::string why)> lost);
  // Others are told from the next message on; may be called while one is taken.
  void start_over(std::function<void(nlohmann::json)> taken, std::function<void(std::string why)> lost);
  void send(const nlohmann::json& message);
  void close();

  // Frames may be large from here on: the hello was in order.
  void trust() { largest_ = frame_bytes_max; }

 private:
  void read_length();
  void read_body(std::size_t length);
  void write();
  void lose(const std::string& why);

  transport::Socket socket_;
  std::function<void(nlohmann::json)> taken_;
  std::function<void(std::string)> lost_;
  std::uint8_t length_[4] = {};
  std::vector<std::uint8_t> body_;
  std::size_t largest_ = hello_bytes_max;
  std::deque<std::vector<std::uint8_t>> outbox_;
  bool writing_ = false, closed_ = false;
};

}  // namespace gradledger::driver
