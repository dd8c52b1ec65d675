#include "sim/transport/address.h"

#include <charconv>

namespace gradledger::transport {
namespace {

InputError wrong(std::string_view text, const std::string& why) {
  return {"address", "\"" + std::string(text) + "\" " + why + "; expected unix:PATH with an absolute path, or tcp:HOST:PORT"};
}

}  // namespace

Result<Address> Address::parse(std::string_view text) {
  constexpr std::string_view of_unix = "unix:", of_tcp = "tcp:";
  if (text.find('\0') != std::string_view::npos) return wrong(text.substr(0, text.find('\0')), "has a zero byte behind it");
  if (text.starts_with(of_unix)) {
    const std::string_view path = text.substr(of_unix.size());
    if (!path.starts_with('/')) return wrong(text, "has no absolute path");
    if (path.size() > path_bytes_max) return wrong(text, "has a path of more than " + std::to_string(path_bytes_max) + " bytes");
    return unix_socket(std::string(path));
  }
  if (!text.starts_with(of_tcp)) return wrong(text, "is neither of a Unix socket nor of TCP");
  const std::string_view place = text.substr(of_tcp.size());
  const std::size_t colon = place.rfind(':');
  if (colon == std::string_view::npos) return wrong(text, "has no port");
  std::string_view host = place.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty() || (!bracketed && host.find_first_of(":[]") != std::string_view::npos)) return wrong(text, "has no host");
  const std::string_view digits = place.substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc{} || end != digits.data() + digits.size()) return wrong(text, "has a port that is no number up to 65535");
  return tcp(std::string(host), port);
}

std::string Address::text() const {
  if (is_unix()) return "unix:" + path;
  const bool colons = host.find(':') != std::string::npos;
  return "tcp:" + (colons ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace gradledger::transport
