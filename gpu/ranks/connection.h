// One rank's connection, on the coordinator's side. Frames come in all the time, so that the end of any process is seen while another one
// is waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "gpu/ranks/wire.h"
#include "sim/transport/door.h"

namespace gradledger::gpu {

// Who is at the other end has shown the secret of the run. Still it says no more than it was asked for, and nothing larger: memory for a
// frame is taken before it is there.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  explicit Connection(transport::Socket s) : socket(std::move(s)) {}

  // Takes in whatever comes, from now on.
  void receive();
  // A request goes out whose reply has at most so many bytes.
  void await(std::uint64_t reply_bytes_max) { awaited_.push_back(reply_bytes_max); }
  // There will be nothing more; `why` is empty where it just ended.
  void lose(const char* why);

  bool failed() const { return !inbox.empty() && inbox.back().kind == FrameKind::failure; }
  bool lost() const { return lost_; }
  const std::string& reason() const { return reason_; }

  transport::Socket socket;
  std::vector<std::byte> outbox;
  std::deque<Frame> inbox;

 private:
  void receive_body();
  // Why the frame cannot be taken; null: it can. What it uses up of what may be said is used up.
  const char* objection(const FrameHeader& announced);

  FrameHeader header_;
  std::vector<std::byte> body_;
  std::deque<std::uint64_t> awaited_;  // bytes of the replies that are due, in the order in which they come
  bool said_hello_ = false;
  bool lost_ = false;
  std::string reason_;
};

}  // namespace gradledger::gpu
