#include "sim/transport/door.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "sim/base/contract.h"

namespace gradledger::transport {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;

constexpr auto pause_between_tries = std::chrono::milliseconds(50);

// A process that is started later must not keep the connections of this one open.
void keep_to_oneself(int descriptor) { fcntl(descriptor, F_SETFD, FD_CLOEXEC); }

// Frames are answered, not streamed. A Unix socket knows no such option and needs none.
void hurry(Socket& socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
}

// Has connected and shown nothing yet.
struct Stranger {
  Stranger(Socket s) : socket(std::move(s)), timer(socket.get_executor()) {}

  Socket socket;
  asio::steady_timer timer;
  std::array<char, secret_bytes> shown{};
};

// One try, over by `until`.
error_code connect(asio::io_context& own, Socket& socket, const Address& address, Clock::time_point until) {
  std::vector<Socket::endpoint_type> places;
  error_code error;
  if (address.is_unix()) {
    places.emplace_back(asio::local::stream_protocol::endpoint(address.path));
  } else {
    for (const auto& place : tcp::resolver(own).resolve(address.host, std::to_string(address.port), error)) places.emplace_back(place.endpoint());
    if (error) return error;
  }
  error = asio::error::timed_out;  // unless it is told otherwise
  asio::async_connect(socket, places, [&](error_code failed, const Socket::endpoint_type&) { error = failed; });
  own.restart();
  own.run_until(until);
  if (!own.stopped()) {
    error_code ignored;
    socket.close(ignored);
    own.run();
    return asio::error::timed_out;
  }
  return error;
}

}  // namespace

struct Door::State : std::enable_shared_from_this<State> {
  State(asio::io_context& context, const Address& wanted, std::string secret_of_the_run, std::function<void(Socket)> admit_one, const DoorLimits& given)
      : address(wanted), secret(std::move(secret_of_the_run)), admit(std::move(admit_one)), limits(given), acceptor(context), pause(context) {
    expects(secret.size() == secret_bytes, "the secret of a door has another length");
    try {
      listen(context);
    } catch (const std::exception& error) {
      throw std::runtime_error("nobody can listen at " + wanted.text() + ": " + error.what());
    }
  }

  void listen(asio::io_context& context) {
    if (address.is_unix()) {
      const asio::local::stream_protocol::endpoint place(address.path);
      acceptor.open(place.protocol());
      acceptor.bind(place);
    } else {
      const tcp::endpoint place = *tcp::resolver(context).resolve(address.host, std::to_string(address.port), tcp::resolver::passive).begin();
      acceptor.open(place.protocol());
      acceptor.set_option(Acceptor::reuse_address(true));
      acceptor.bind(place);
      tcp::endpoint given;
      const auto local = acceptor.local_endpoint();
      std::memcpy(given.data(), local.data(), std::min(local.size(), given.capacity()));
      address.port = given.port();
    }
    keep_to_oneself(acceptor.native_handle());
    acceptor.listen();
  }

  void accept() {
    acceptor.async_accept([self = shared_from_this()](error_code error, Socket socket) {
      if (self->closed) return;
      if (error) return self->accept_later();
      self->meet(std::move(socket));
      self->accept();
    });
  }

  // Whatever the error was, others may still come. The oldest stranger has had the pause to show the secret; what he held is free then.
  void accept_later() {
    pause.expires_after(limits.pause);
    pause.async_wait([self = shared_from_this()](error_code) {
      if (self->closed) return;
      if (!self->strangers.empty()) self->send_away(self->strangers.front());
      self->accept();
    });
  }

  void meet(Socket socket) {
    keep_to_oneself(socket.native_handle());
    if (strangers.size() >= limits.strangers_max) send_away(strangers.front());
    const auto one = strangers.emplace_back(std::make_shared<Stranger>(std::move(socket)));
    one->timer.expires_after(limits.deadline);
    one->timer.async_wait([self = shared_from_this(), one](error_code error) {
      if (!error) self->send_away(one);
    });
    asio::async_read(one->socket, asio::buffer(one->shown), [self = shared_from_this(), one](error_code error, std::size_t) {
      if (!one->socket.is_open()) return;  // sent away
      if (error || !same_secret({one->shown.data(), one->shown.size()}, self->secret)) return self->send_away(one);
      self->strangers.remove(one);
      one->timer.cancel();
      hurry(one->socket);
      self->admit(std::move(one->socket));
    });
  }

  void send_away(std::shared_ptr<Stranger> one) {
    error_code ignored;
    one->socket.close(ignored);
    one->timer.cancel();
    strangers.remove(one);
  }

  void close() {
    if (std::exchange(closed, true)) return;
    error_code ignored;
    acceptor.close(ignored);
    pause.cancel();
    while (!strangers.empty()) send_away(strangers.front());
    if (address.is_unix()) unlink(address.path.c_str());
  }

  Address address;
  std::string secret;
  std::function<void(Socket)> admit;
  DoorLimits limits;
  Acceptor acceptor;
  asio::steady_timer pause;
  std::list<std::shared_ptr<Stranger>> strangers;  // the oldest first
  bool closed = false;
};

Door::Door(asio::io_context& context, const Address& wanted, std::string secret, std::function<void(Socket)> admit, DoorLimits limits)
    : state_(std::make_shared<State>(context, wanted, std::move(secret), std::move(admit), limits)) {
  state_->accept();
}

Door::~Door() { state_->close(); }

const Address& Door::address() const { return state_->address; }
std::size_t Door::strangers() const { return state_->strangers.size(); }
void Door::close() { state_->close(); }

Socket knock(asio::io_context& context, const Address& address, std::string_view secret, std::chrono::milliseconds deadline) {
  expects(secret.size() == secret_bytes, "a secret to be shown has another length");
  const auto until = Clock::now() + deadline;
  asio::io_context own;  // the caller's is not run: it may have work of others
  error_code error;
  do {
    Socket socket(own);
    error = connect(own, socket, address, until);
    if (!error) {
      const auto protocol = socket.local_endpoint().protocol();
      Socket out(context, protocol, socket.release());
      out.native_non_blocking(false);
      keep_to_oneself(out.native_handle());
      hurry(out);
      asio::write(out, asio::buffer(secret), error);
      if (!error) return out;
    }
    std::this_thread::sleep_for(std::min<Clock::duration>(pause_between_tries, until - Clock::now()));
  } while (Clock::now() < until);
  throw std::runtime_error("nobody is reached at " + address.text() + ": " + error.message());
}

}  // namespace gradledger::transport
