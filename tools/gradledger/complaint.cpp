#include <cstdio>

#include <fmt/format.h>

#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/verbs.h"

namespace gradledger::tool {

void say(const std::string& text) {
  std::string line = "gradledger: ";
  for (const unsigned char c : text) line += c < 0x20 || c == 0x7f ? fmt::format("\\x{:02x}", c) : std::string(1, static_cast<char>(c));
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void complain(const InputError& error) { say(error.text()); }

std::optional<int> unavailable_producer(const Options& options) {
  if (options.producer == "host") return std::nullopt;
  complain({"--producer", "\"" + options.producer + "\" is not available in this build; expected host"});
  return unavailable;
}

}  // namespace gradledger::tool
