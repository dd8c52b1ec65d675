#include "sim/frameworks/torch/history/releases.h"

#include <array>
#include <charconv>
#include <string>

namespace gradledger::torch {
namespace {

constexpr std::array<ReleaseLine, 12> lines{{{"2.4.0", "2.4.1"},
                                             {"2.5.0", "2.5.1"},
                                             {"2.6.0", "2.6.0"},
                                             {"2.7.0", "2.7.1"},
                                             {"2.8.0", "2.8.0"},
                                             {"2.9.0", "2.9.1"},
                                             {"2.10.0", "2.10.0"},
                                             {"2.11.0", "2.11.0"},
                                             {"2.12.0", "2.12.1"},
                                             {"2.13.0", "2.13.0"},
                                             {"2.14.0", "2.14.1"},
                                             {"2.15.0", "2.15.0"}}};

using Version = std::array<std::uint32_t, 3>;

// "2.6" and "2.6.0"; nothing where it is another text.
std::optional<Version> version_of(std::string_view text) {
  Version out{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out[i]);
    if (error != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) return i == 0 ? std::nullopt : std::optional(out);
    if (text.front() != '.') return std::nullopt;
    text.remove_prefix(1);
  }
  return std::nullopt;
}

// The newest line that is not behind it.
std::optional<std::uint32_t> line_of(const Version& version) {
  for (auto i = static_cast<std::uint32_t>(lines.size()); i-- > 0;)
    if (version >= *version_of(lines[i].first)) return i;
  return std::nullopt;
}

}  // namespace

std::span<const ReleaseLine> release_lines() { return lines; }

Result<std::uint32_t> line_of_release(std::string_view as_of, std::string_view where) {
  if (as_of == "head") return static_cast<std::uint32_t>(lines.size() - 1);
  const auto version = version_of(as_of);
  const auto line = version ? line_of(*version) : std::nullopt;
  if (line) return *line;
  return InputError{std::string(where), "is \"" + std::string(as_of) + "\"; of PyTorch " + std::string(lines.front().first) + " to " + std::string(lines.back().last) +
                                            " are modelled: expected one of these, or \"head\", which is the newest"};
}

std::optional<std::string> release_note(std::string_view as_of) {
  const auto version = version_of(as_of);
  const auto line = version ? line_of(*version) : std::nullopt;
  if (!line || *version <= *version_of(lines[*line].last)) return std::nullopt;
  const std::string taken = "; taken as " + std::string(lines[*line].last);
  if (*line + 1 == lines.size()) return "PyTorch " + std::string(as_of) + " is newer than every release that was compared" + taken;
  return "PyTorch " + std::string(as_of) + " is no release that was compared" + taken;
}

AsOf installed_release(const std::map<std::string, std::string>& releases) {
  const auto found = releases.find("torch");
  if (found == releases.end()) return {};
  const std::string release = found->second.substr(0, found->second.find('+'));
  return version_of(release) && line_of(*version_of(release)) ? AsOf{release, {}} : AsOf{};
}

}  // namespace gradledger::torch
