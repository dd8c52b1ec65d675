// A driver in C++: a program that runs your wrapper in a process for each rank, for `gradledger replay FILE --producer program:./your_program`.
//
//   int main() { return gradledger::serve(gradledger::ranks<YourWrapper>("your-runtime")); }
//
// Headers alone, with nlohmann_json 3.11 and POSIX. docs/driver-protocol.md is what it speaks.
#pragma once

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <map>
#include <string>

#include "gradledger/player.hpp"

namespace gradledger::GRADLEDGER_API {
namespace detail {

inline constexpr std::uint32_t frame_bytes_max = 1u << 30;

// The command is gone, or said goodbye: there is nothing left to do.
struct Gone : Ended {};

[[noreturn]] inline void fail_with_errno(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

// -1 and errno where there is no connection.
inline int connected_to(int family, const sockaddr* to, socklen_t length) {
  const int out = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (out < 0 || connect(out, to, length) == 0) return out;
  const int error = errno;
  close(out);
  errno = error;
  return -1;
}

inline int connected_socket(const std::string& address) {
  int out = -1;
  if (address.starts_with("unix:")) {
    const std::string path = address.substr(5);
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    if (path.size() >= sizeof(to.sun_path)) throw std::runtime_error("the path of the socket is too long: " + path);
    std::memcpy(to.sun_path, path.c_str(), path.size() + 1);
    out = connected_to(AF_UNIX, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  } else {
    const std::size_t colon = address.rfind(':');
    if (!address.starts_with("tcp:") || colon == 3) throw std::runtime_error("GRADLEDGER_ADDRESS is \"" + address + "\"; expected unix:PATH or tcp:HOST:PORT");
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (const int error = getaddrinfo(address.substr(4, colon - 4).c_str(), address.substr(colon + 1).c_str(), &hints, &found); error != 0)
      throw std::runtime_error("cannot find " + address + ": " + gai_strerror(error));
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, freeaddrinfo);
    // A name may have addresses of which the command listens at one alone, as localhost has ::1 before 127.0.0.1.
    for (const addrinfo* one = found; one && out < 0; one = one->ai_next) out = connected_to(one->ai_family, one->ai_addr, one->ai_addrlen);
  }
  if (out < 0) fail_with_errno("cannot connect to " + address);
  return out;
}

inline std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) throw std::runtime_error(std::string(name) + " is not set: this program is started by \"gradledger replay FILE --producer program:PATH\"");
  return value;
}

// A connection to the command: frames of MessagePack.
class Wire {
 public:
  explicit Wire(const json& hello) : socket_(connected_socket(variable("GRADLEDGER_ADDRESS"))) {
    const std::string token = variable("GRADLEDGER_TOKEN");
    write_all(token.data(), token.size());
    send(hello);
    if (receive().value("type", "") != "welcome") throw std::runtime_error("the command did not welcome this program");
  }
  ~Wire() {
    if (socket_ >= 0) close(socket_);
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  void send(const json& message) {
    std::vector<std::uint8_t> frame(4);
    json::to_msgpack(message, frame);
    const std::size_t length = frame.size() - 4;
    if (length > frame_bytes_max) throw std::runtime_error("an answer of " + std::to_string(length) + " bytes is too large; expected at most 1 GiB");
    for (std::size_t i = 0; i < 4; ++i) frame[i] = static_cast<std::uint8_t>(length >> (24 - 8 * i));
    write_all(frame.data(), frame.size());
  }

  // Throws Gone.
  json receive() {
    std::uint8_t head[4];
    read_all(head, sizeof(head));
    const std::uint32_t length = std::uint32_t{head[0]} << 24 | std::uint32_t{head[1]} << 16 | std::uint32_t{head[2]} << 8 | head[3];
    if (length > frame_bytes_max) throw std::runtime_error("the command announced a message of " + std::to_string(length) + " bytes; expected at most 1 GiB");
    std::vector<std::uint8_t> body(length);
    read_all(body.data(), body.size());
    json out = json::from_msgpack(body);
    if (!out.is_object() || !out.contains("type") || !out["type"].is_string()) throw std::runtime_error("the command sent a message without a type");
    if (out["type"] != "bye") return out;
    if (const std::string reason = out.value("reason", ""); !reason.empty()) std::fprintf(stderr, "gradledger said goodbye: %s\n", reason.c_str());
    throw Gone();
  }

  // In a process that inherited it.
  void leave_to_the_parent() {
    close(socket_);
    socket_ = -1;
  }

  bool waits(int milliseconds) const {
    pollfd waiting{socket_, POLLIN, 0};
    return poll(&waiting, 1, milliseconds) > 0;
  }

 private:
  void write_all(const void* data, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes;) {
      const ssize_t n = ::send(socket_, static_cast<const char*>(data) + at, bytes - at, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw Gone();
      at += static_cast<std::size_t>(n);
    }
  }
  void read_all(void* data, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes;) {
      const ssize_t n = ::recv(socket_, static_cast<char*>(data) + at, bytes - at, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw Gone();
      at += static_cast<std::size_t>(n);
    }
  }

  int socket_;
};

inline json rank_hello(const Abilities& can, const char* kind, std::uint32_t rank, std::uint32_t world_size) {
  json out = hello_of(can, kind, getpid());
  out["rank"] = rank;
  out["world_size"] = world_size;
  return out;
}

// Collectives through the command, over a connection of their own.
class CommandCommunicator final : public Communicator {
 public:
  CommandCommunicator(const Abilities& can, std::uint32_t rank, std::uint32_t world_size) : Communicator(rank, world_size), can_(can) {}

  void at(const RankPlayer& player) { player_ = &player; }

  std::vector<std::byte> call(const Collective& collective) override {
    if (!wire_) wire_ = std::make_unique<Wire>(rank_hello(can_, "group", rank(), world_size()));
    const std::uint64_t id = next_id_++;
    wire_->send(collective_json(collective, id, player_->event()));
    wire_->send({{"type", "wait"}, {"id", id}});
    while (true) {
      const json answer = wire_->receive();
      if (answer["type"] == "go_on") continue;
      if (answer.value("id", json()) != id) throw std::runtime_error("the command answered another collective than the one that was asked for");
      return result_of(answer);
    }
  }

 private:
  const Abilities& can_;
  const RankPlayer* player_ = nullptr;
  std::unique_ptr<Wire> wire_;
  std::uint64_t next_id_ = 0;
};

// The process of one rank; its exit code.
inline int play_rank(const Ranks& ranks, std::uint32_t rank, std::uint32_t world_size) {
  try {
    Wire events(rank_hello(ranks.abilities, "driver", rank, world_size));
    try {
      CommandCommunicator communicator(ranks.abilities, rank, world_size);
      RankPlayer player(ranks, communicator);
      communicator.at(player);
      while (true)
        if (const auto answer = player.answer(events.receive())) events.send(*answer);
    } catch (const std::exception& error) {
      events.send({{"type", "failure"}, {"text", error.what()}, {"traceback", ""}});
      events.receive();  // the command ends this process
      return 1;
    }
  } catch (const Gone&) {
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

// Starts ranks, ends them and tells of their ends.
class Host {
 public:
  explicit Host(const Ranks& ranks) : ranks_(ranks), wire_(hello_of(ranks.abilities, "host", getpid())) {}
  ~Host() {
    for (const auto& [process, rank] : processes_) kill(process, SIGKILL);
  }

  [[noreturn]] void run() {
    constexpr int turn_ms = 20;  // the ends of ranks are looked for in between
    while (true) {
      if (wire_.waits(turn_ms)) obey(wire_.receive());
      int status = 0;
      for (pid_t ended = waitpid(-1, &status, WNOHANG); ended > 0; ended = waitpid(-1, &status, WNOHANG)) tell_end(ended, status);
    }
  }

 private:
  void obey(const json& order) {
    const std::uint32_t rank = order.at("rank");
    if (order["type"] == "start") return start(rank, order.at("world_size"), order.at("errors"));
    if (order["type"] != "end") throw std::runtime_error("\"" + order["type"].get<std::string>() + "\" is not understood");
    for (const auto& [process, of] : processes_)
      if (of == rank) kill(process, SIGKILL);
  }

  void start(std::uint32_t rank, std::uint32_t world_size, const std::string& errors) {
    std::fflush(nullptr);
    const pid_t process = fork();
    if (process < 0) fail_with_errno("a process for a rank cannot be started");
    if (process == 0) {
      wire_.leave_to_the_parent();
      const int file = open(errors.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
      if (file >= 0) {
        dup2(file, 1);
        dup2(file, 2);
      }
      const int code = play_rank(ranks_, rank, world_size);
      std::fflush(nullptr);
      _exit(code);
    }
    processes_[process] = rank;
    wire_.send({{"type", "started"}, {"rank", rank}, {"process", process}});
  }

  void tell_end(pid_t process, int status) {
    const auto ended = processes_.find(process);
    if (ended == processes_.end()) return;
    json message{{"type", "ended"}, {"rank", ended->second}, {"process", process}};
    if (WIFSIGNALED(status)) message["signal"] = WTERMSIG(status);
    else message["code"] = WEXITSTATUS(status);
    processes_.erase(ended);
    wire_.send(message);
  }

  const Ranks& ranks_;
  Wire wire_;
  std::map<pid_t, std::uint32_t> processes_;
};

}  // namespace detail

// What main() returns. Ranks are forked: no threads may run before.
inline int serve(const Ranks& ranks) {
  try {
    detail::Host(ranks).run();
  } catch (const detail::Gone&) {
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}

}  // namespace gradledger::GRADLEDGER_API
