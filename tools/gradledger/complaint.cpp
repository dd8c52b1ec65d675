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

}  // namespace gradledger::tool
