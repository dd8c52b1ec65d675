// Sockets between the processes of a run: one side has a door, the others knock. Whoever shows the secret of the run comes in; nothing that
// anybody else sends is looked at. docs/driver-protocol.md, "Connections".
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>

#include "sim/transport/address.h"
#include "sim/transport/secret.h"

namespace gradledger::transport {

using Socket = boost::asio::generic::stream_protocol::socket;  // Unix or TCP

struct DoorLimits {
  std::chrono::milliseconds deadline = std::chrono::seconds(5);     // for the 64 bytes of the secret, from the connection on
  std::size_t strangers_max = 256;                                  // that wait; the oldest goes when there are more. Every rank of a run is one for a moment
  std::chrono::milliseconds pause = std::chrono::milliseconds(50);  // after an error of accept(), as when there are no more file descriptors
};

// Works while the context is run, in one thread.
class Door {
 public:
  // Listens from here on; std::runtime_error with the address where it cannot. `admit` is given the socket of each who has shown the
  // secret; it may close the door. Precondition: the secret has 64 bytes.
  Door(boost::asio::io_context& context, const Address& wanted, std::string secret, std::function<void(Socket)> admit, DoorLimits limits = {});
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  const Address& address() const;  // with the port that was given
  std::size_t strangers() const;   // who wait to be let in
  // Nobody is let in any more, and strangers are sent away; who has been let in stays. The file of a Unix socket is gone.
  void close();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with what is under way in the context
};

// The other side: connects, tried again until the deadline, and shows the secret. The socket belongs to the context, which is not run.
// std::runtime_error with the address where nobody could be reached. Precondition: the secret has 64 bytes.
Socket knock(boost::asio::io_context& context, const Address& address, std::string_view secret, std::chrono::milliseconds deadline);

}  // namespace gradledger::transport
