#include "loops/releases.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <vector>

#include <nlohmann/json.hpp>

namespace gradledger::loops {
namespace {

std::vector<unsigned> numbers_of(std::string_view release) {
  std::vector<unsigned> out;
  while (!release.empty()) {
    unsigned number = 0;
    const auto [end, error] = std::from_chars(release.data(), release.data() + release.size(), number);
    if (error != std::errc{}) break;
    out.push_back(number);
    release.remove_prefix(static_cast<std::size_t>(end - release.data()));
    if (release.empty() || (release.front() != '.' && release.front() != '-')) break;
    release.remove_prefix(1);
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

}  // namespace

bool at_least(std::string_view release, std::string_view other) {
  std::vector<unsigned> a = numbers_of(release), b = numbers_of(other);
  const std::size_t size = std::max(a.size(), b.size());
  a.resize(size);
  b.resize(size);
  return a >= b;
}

std::string package_name(std::string_view written) {
  std::string out;
  for (const unsigned char c : trimmed(written)) out += c == '_' || c == '.' ? '-' : static_cast<char>(std::tolower(c));
  return out;
}

Result<Releases> releases_of_freeze(std::string_view text, const std::string& file) {
  Releases out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view whole = text.substr(0, end), line = trimmed(whole.substr(0, whole.find('#')));
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t equals = line.find("==");
    if (equals == line.npos || line.front() == '-') continue;
    const std::string_view name = line.substr(0, std::min(line.find('['), equals));
    const std::string_view release = trimmed(line.substr(equals + 2, line.substr(equals + 2).find_first_of(" ;,")));
    out[package_name(name)] = std::string(release);
  }
  if (out.empty()) return InputError{file, "names no release of any package; expected the output of pip freeze, lines such as deepspeed==0.18.6"};
  return out;
}

Result<Releases> releases_of_json(std::string_view text, const std::string& where) {
  const auto read = nlohmann::json::parse(text, nullptr, false);
  if (!read.is_object()) return InputError{where, "did not print its packages; expected an interpreter of Python 3.8 or newer"};
  Releases out;
  for (const auto& [name, release] : read.items())
    if (release.is_string()) out[package_name(name)] = release.get<std::string>();
  return out;
}

}  // namespace gradledger::loops
