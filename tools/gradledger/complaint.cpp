#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "sim/frameworks/framework.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/verbs.h"

namespace gradledger::tool {

namespace {

// Complaints come from wherever something is wrong, with no report at hand.
std::function<void(const InputError&, int)>& hears_errors() {
  static std::function<void(const InputError&, int)> hear;
  return hear;
}

}  // namespace

std::string one_line(const std::string& text) {
  std::string line = "gradledger: ";
  for (const unsigned char c : text) line += c < 0x20 || c == 0x7f ? fmt::format("\\x{:02x}", c) : std::string(1, static_cast<char>(c));
  return line;
}

void say(const std::string& text) {
  const std::string line = one_line(text) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void say_lines(const std::string& text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    say(text.substr(at, end - at));
    at = end + 1;
  }
}

void say_what_is_taken_as(const std::string& where, const Framework& framework, const std::string& as_of) {
  if (const auto note = framework.as_of_note(as_of)) say(where + ": " + *note);
}

void say_what_is_taken_as(const Loaded& loaded) {
  const auto note = framework_of(loaded.scenario).as_of_note(loaded.scenario.engine.as_of.base);
  if (note) say(loaded.place("/engine/as_of") + ": " + *note);
}

void complain(const InputError& error, int code) {
  say(error.text());
  if (hears_errors()) hears_errors()(error, code);
}

void complain(const InputError& error) { complain(error, error.unavailable ? unavailable : bad_input); }

void complain_lines(const std::string& text, int code) {
  say_lines(text);
  if (hears_errors()) hears_errors()({"", text}, code);
}

ErrorListener::ErrorListener(std::function<void(const InputError&, int)> hear) {
  expects(!hears_errors(), "one listens at a time");
  hears_errors() = std::move(hear);
}

ErrorListener::~ErrorListener() { hears_errors() = nullptr; }

}  // namespace gradledger::tool
