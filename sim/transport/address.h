// Where somebody listens: a Unix socket, or a TCP port.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "sim/base/result.h"

namespace gradledger::transport {

struct Address {
  std::string path;  // of a Unix socket; empty: TCP
  std::string host;
  std::uint16_t port = 0;  // for a door: 0 takes any that is free

  // As the system's struct has it, without the zero at the end.
  static constexpr std::size_t path_bytes_max = 107;

  static Address unix_socket(std::string path) { return {std::move(path), {}, 0}; }
  static Address tcp(std::string host, std::uint16_t port) { return {{}, std::move(host), port}; }
  // "unix:PATH" with an absolute path, "tcp:HOST:PORT", where a host of colons stands in brackets: tcp:[::1]:7000.
  static Result<Address> parse(std::string_view text);

  bool is_unix() const { return !path.empty(); }
  std::string text() const;

  bool operator==(const Address&) const = default;
};

}  // namespace gradledger::transport
