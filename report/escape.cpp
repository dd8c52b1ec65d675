#include "report/escape.h"

#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gradledger::report {
namespace {

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7f; }

}  // namespace

std::string valid_utf8(std::string_view text) {
  using nlohmann::json;
  return json::parse(json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
}

std::string printable_text(std::string_view text) {
  std::string out;
  for (const char c : valid_utf8(text)) {
    if (is_control(static_cast<unsigned char>(c)) && c != '\n' && c != '\t') out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else out += c;
  }
  // Two characters of the last rows of UTF-8's first plane are in no XML.
  for (const std::string_view never : {"\xef\xbf\xbe", "\xef\xbf\xbf"})
    for (std::size_t at = out.find(never); at != std::string::npos; at = out.find(never, at)) out.replace(at, never.size(), "\xef\xbf\xbd");
  return out;
}

std::string printable_line(std::string_view text) {
  std::string out;
  for (const char c : printable_text(text)) {
    if (c == '\n') out += "\\n";
    else if (c == '\t') out += "\\t";
    else out += c;
  }
  return out;
}

std::string path_uri(const std::string& path) {
  constexpr std::string_view plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
  const std::string normal = std::filesystem::path(path).lexically_normal().generic_string();
  std::string out = normal.starts_with('/') ? "file://" : "";
  for (const char c : normal) {
    if (plain.find(c) != std::string_view::npos) out += c;
    else out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace gradledger::report
