// One rank of the stand-in, and the connections that it speaks on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>

#include "sim/transport/door.h"

namespace gradledger::stand_in {

using nlohmann::json;

// A connection on which one thing is said at a time.
class Wire {
 public:
  explicit Wire(const json& hello);
  ~Wire();

  void send(const json& message);
  void send_bytes(const std::vector<std::uint8_t>& bytes);
  json receive();  // leaves the process where the command is gone
  std::optional<json> receive_within(int milliseconds);
  void close() { socket_.close(); }
  bool closed() const { return closed_; }

 private:
  bool read(void* into, std::size_t bytes);

  boost::asio::io_context context_;
  transport::Socket socket_;
  bool closed_ = false;
};

// Until the command says goodbye. The exit code.
int play_rank(const std::string& name, std::uint32_t rank, std::uint32_t world_size, const json& events_hello, const json& group_hello);

}  // namespace gradledger::stand_in
