#include "sim/scenario/history.h"

#include <array>
#include <charconv>
#include <optional>
#include <tuple>

namespace gradledger {
namespace {

constexpr std::array<ChangeInfo, 15> all_changes{{
    {Change::pr6550, "#6550", "stage 1/2 offload: the counter starts at -1; add above id 0, else store"},
    {Change::pr7509, "#7509", "stage 1/2: all_grad_tensors split off averaged_gradients, emptiness still tested on the latter"},
    {Change::pr7515, "#7515", "bf16 with fp32 accumulation at stage 1 is served by FP16_UnfusedOptimizer"},
    {Change::pr7665, "#7665", "PyTorch-style backward: 1/ga in an output hook, emptiness tested on all_grad_tensors, epilogue order"},
    {Change::pr7780, "#7780", "stage 3: micro_step_id moves at the next forward instead of in the epilogue"},
    {Change::pr7788, "#7788", "bf16 with fp32 accumulation at stage 1 is served by BF16_Optimizer again"},
    {Change::pr7839, "#7839", "stage 0 bf16: gradients are zeroed after the step, no scale of 65536 is divided out"},
    {Change::pr7967, "#7967", "stage 1/2 offload: the host accumulator is always stored (ga > 1)"},
    {Change::pr7981, "#7981", "stage 1/2 offload: the host accumulator is used when more than one backward needs it, also at ga = 1"},
    {Change::pr7985, "#7985", "BF16_Optimizer: the boundary micro-batch is accumulated before the all-reduce"},
    {Change::pr7992, "#7992", "coalesce_grad_reduction is available"},
    {Change::pr8035, "#8035", "bf16.check_grad_overflow defaults to true"},
    {Change::pr8068, "#8068", "gradient_clipping defaults to 1.0"},
    {Change::pr8184, "#8184", "unmanaged gradient accumulation is available"},
    {Change::sum_op, "sum", "gradient_allreduce_op \"sum\" is honoured"},
}};

// Read off the published packages: which changes each contains.
constexpr std::array<ReleaseInfo, 12> all_releases{{
    {"0.16.0", "0.16.9", 1},
    {"0.17.0", "0.17.5", 1},
    {"0.17.6", "0.17.6", 3},
    {"0.18.0", "0.18.2", 3},
    {"0.18.3", "0.18.4", 4},
    {"0.18.5", "0.18.5", 6},
    {"0.18.6", "0.18.9", 7},
    {"0.19.0", "0.19.0", 10},
    {"0.19.1", "0.19.2", 11},
    {"0.19.3", "0.19.3", 13},
    {"0.19.4", "0.19.5", 14},
    {"0.19.6", "0.19.6", 15},
}};

using Version = std::tuple<int, int, int>;

std::optional<Version> version_of(std::string_view text) {
  std::array<int, 3> parts{};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parts[i]);
    if (error != std::errc{} || parts[i] < 0) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (i < 2) {
      if (!text.starts_with('.')) return std::nullopt;
      text.remove_prefix(1);
    }
  }
  if (!text.empty()) return std::nullopt;
  return Version{parts[0], parts[1], parts[2]};
}

std::string what_is_known() {
  std::string text = "a release from " + std::string(all_releases.front().first) + " to " + std::string(all_releases.back().last) +
                     ", \"head\", or a change, as \"#7981\" (right after it) or \"before #7981\": ";
  for (const ChangeInfo& change : all_changes) {
    if (!change.name.starts_with('#')) continue;
    text += text.ends_with(": ") ? "" : ", ";
    text += change.name;
  }
  return text;
}

std::optional<PointInHistory> known_point(std::string_view as_of) {
  if (as_of == "head") return head();
  const bool before = as_of.starts_with("before ");
  const std::string_view change_name = before ? as_of.substr(7) : as_of;
  for (const ChangeInfo& change : all_changes) {
    if (!change.name.starts_with('#') || change.name != change_name) continue;
    const auto position = static_cast<std::uint8_t>(change.change);
    return PointInHistory{static_cast<std::uint8_t>(before ? position : position + 1)};
  }
  const auto version = version_of(as_of);
  if (!version) return std::nullopt;
  for (const ReleaseInfo& release : all_releases)
    if (*version_of(release.first) <= *version && *version <= *version_of(release.last)) return PointInHistory{release.changes};
  return std::nullopt;
}

// The spelling that is known of a release or change that was written in another one: "v0.18.9", "7981", "after #7981".
std::string hint(std::string_view as_of) {
  const std::size_t first = as_of.find_first_of("0123456789");
  if (first == std::string_view::npos) return "";
  const std::string_view rest = as_of.substr(first);
  const std::string number(rest.substr(0, rest.find_first_not_of("0123456789.")));
  const bool before = as_of.find("before") < first || as_of.find("Before") < first;
  for (const std::string& spelling : {before ? "before #" + number : "#" + number, number})
    if (spelling != as_of && known_point(spelling)) return "; did you mean \"" + spelling + "\"?";
  return "";
}

}  // namespace

std::span<const ChangeInfo> changes() { return all_changes; }
std::span<const ReleaseInfo> releases() { return all_releases; }

PointInHistory head() { return {static_cast<std::uint8_t>(all_changes.size())}; }

Result<PointInHistory> point_named(std::string_view as_of, std::string_view where) {
  if (const auto point = known_point(as_of)) return *point;
  return InputError{std::string(where), "unknown release or change \"" + std::string(as_of) + "\"; expected " + what_is_known() + hint(as_of)};
}

}  // namespace gradledger
