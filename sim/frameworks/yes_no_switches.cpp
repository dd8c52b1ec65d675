#include "sim/frameworks/yes_no_switches.h"

#include <charconv>

namespace gradledger {

std::optional<ReleaseNumber> release_number(std::string_view text) {
  ReleaseNumber out{};
  for (std::size_t at = 0; at < out.size(); ++at) {
    if (at > 0) {
      if (!text.starts_with('.')) return std::nullopt;
      text.remove_prefix(1);
    }
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out[at]);
    if (error != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
  return text.empty() ? std::optional(out) : std::nullopt;
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
