#include "sim/frameworks/yes_no_switches.h"

#include <charconv>

namespace gradledger {

std::optional<ReleaseNumber> release_number(std::string_view text) {
  ReleaseNumber out;
  while (true) {
    unsigned number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{}) return std::nullopt;
    out.push_back(number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) return out.size() == 3 ? std::optional(out) : std::nullopt;
    if (text.front() != '.') return std::nullopt;
    text.remove_prefix(1);
  }
}

std::optional<std::string> note_of_newer_release(std::string_view as_of, std::string_view newest) {
  const auto release = release_number(as_of);
  if (!release || *release <= *release_number(newest)) return std::nullopt;
  return std::string(as_of) + " is newer than every release that is modelled; taken as the newest of them, " + std::string(newest);
}

Result<std::optional<ReleaseNumber>> asked_release(const AsOf& as_of, std::string_view oldest, std::string_view title) {
  if (as_of.base == "head") return std::optional<ReleaseNumber>{};
  const auto release = release_number(as_of.base);
  if (!release) return InputError{"/engine/as_of", "is \"" + as_of.base + "\"; expected a release of " + std::string(title) + ", as \"" + std::string(oldest) + "\", or \"head\""};
  if (*release < *release_number(oldest)) return InputError{"/engine/as_of", "is \"" + as_of.base + "\"; releases are modelled from " + std::string(oldest) + " on"};
  return release;
}

}  // namespace gradledger
