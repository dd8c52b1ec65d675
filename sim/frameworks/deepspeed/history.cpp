#include "sim/frameworks/deepspeed/history.h"

#include <array>
#include <charconv>

namespace gradledger {
namespace {

constexpr std::array<ChangeInfo, 71> all_changes{{
    {Change::pr545, "#545", "stage 2: a missing gradient becomes zeros in the flat partition instead of being left out"},
    {Change::pr551, "#551", "stages 1 and 2: the norm is not summed over the world a second time where there is no model-parallel group"},
    {Change::pr861, "#861", "stage 2 offload: parameters that no backward used are left out of the norm instead of raising"},
    {Change::pr1039, "#1039", "stages 1 and 2: unused parameters are ignored by default instead of raising"},
    {Change::pr1273, "#1273", "stage 1: parameters without a gradient stay out of the bucket; gradients of other owners are kept"},
    {Change::pr1264, "#1264", "pipeline with ZeRO: the boundary is handed to the optimizer"},
    {Change::pr2512, "#2512", "data_types.grad_accum_dtype is available; without it bf16 accumulates in fp32, which ZeRO stages refuse"},
    {Change::pr2566, "#2566", "without grad_accum_dtype the accumulation dtype is the model's"},
    {Change::pr2695, "#2695", "stages 1 and 2 fp16: the norm that is reported is divided by the scale that the gradients have"},
    {Change::pr3166, "#3166", "stages 1 and 2: only fp16 is unscaled and clipped, bf16 no more"},
    {Change::pr3630, "#3630", "stage 3: no multiplication by a predivide factor of 1"},
    {Change::pr3790, "#3790", "stages 1 and 2: bf16 is clipped again"},
    {Change::pr4084, "#4084", "stage 1 with an accumulation dtype of its own: the bucket takes PARAM.grad_accum; with offload ZeRO serves it"},
    {Change::pr4957, "#4957", "mixture of experts: the expert gradients of ZeRO are divided once"},
    {Change::pr4975, "#4975", "bf16.immediate_grad_update is available, and the default"},
    {Change::pr5150, "#5150", "stage 0 fp32: the clip coefficient is at most 1 instead of at least 1"},
    {Change::pr5170, "#5170", "BF16_Optimizer: the accumulator is reduced, which the step uses, instead of PARAM.grad"},
    {Change::pr5268, "#5268", "stages 1 and 2: the filled part of a contiguous bucket is reduced instead of the whole buffer"},
    {Change::pr5259, "#5259", "BF16_Optimizer serves mixtures of experts, with the expert group's own reduction"},
    {Change::pr5328, "#5328", "BF16_Optimizer with immediate_grad_update: the hook zeroes PARAM.grad once it is added"},
    {Change::pr5555, "#5555", "stage 0 with sequence parallelism: divided by the data-parallel world without the sequence's part"},
    {Change::pr5606, "#5606", "stages 1 and 2 with overlap_comm: a bucket waits for the reduction that reads it"},
    {Change::pr5868, "#5868", "stages 1 and 2: nothing is reduced for an empty tensor"},
    {Change::pr6485, "#6485", "BF16_Optimizer with accumulation in bf16: the masters' gradient is set at every step instead of once"},
    {Change::pr6508, "#6508", "#5328 is taken back"},
    {Change::pr6550, "#6550", "stage 1/2 offload: the counter starts at -1; add above id 0, else store"},
    {Change::pr6590, "#6590", "safe_set_full_grad and safe_set_local_grad are available"},
    {Change::pr6546, "#6546", "mixture of experts: the expert gradients of ZeRO are divided by the data-parallel world"},
    {Change::pr6675, "#6675", "no_sync is available; inside it, and in pipelines, the loss is not divided by gradient_accumulation_steps"},
    {Change::pr7171, "#7171", "an infinite norm is masked without making a NaN"},
    {Change::pr7302, "#7302", "stage 3 offload: safe_set_local_grad refreshes the recorded norm"},
    {Change::pr6976, "#6976", "stages 1 and 2: an overflow is looked for in bf16 too, where configured; stages 1 to 3: the loss scale grows one step later; immediate_grad_update defaults to false"},
    {Change::pr6993, "#6993", "torch.autocast with ZeRO; clearing a bucket starts its buffers from the first again, at stage 3 it goes on behind what was cleared"},
    {Change::pr7418, "#7418", "stage 3: a bucket that was reduced is filled from its beginning again"},
    {Change::pr7371, "#7371", "stages 1 and 2 with overlap_comm: a bucket waits for every reduction before it is filled"},
    {Change::pr7509, "#7509", "stage 1/2: all_grad_tensors split off averaged_gradients, emptiness still tested on the latter"},
    {Change::pr7515, "#7515", "bf16 with fp32 accumulation at stage 1 is served by FP16_Optimizer and FP16_UnfusedOptimizer"},
    {Change::pr7534, "#7534", "stage 3 with autocast: a tied parameter is reduced once instead of once for each use"},
    {Change::pr7580, "#7580", "stage 1 fp16: ranks agree on an overflow"},
    {Change::pr7636, "#7636", "stages 1 and 2: a full bucket is looked up under the communication dtype, not the parameter's"},
    {Change::pr7645, "#7645", "FP16_Optimizer: the step returns early on an overflow alone"},
    {Change::pr7660, "#7660", "stages 1 and 2: a parameter larger than the bucket is found again under the communication dtype"},
    {Change::pr7665, "#7665", "PyTorch-style backward: 1/ga in an output hook of every pipeline stage, emptiness tested on all_grad_tensors, epilogue order"},
    {Change::pr7700, "#7700", "stages 1 and 2: a rank that owns no parameter is served"},
    {Change::pr7724, "#7724", "scale_wrt_gas false has an effect on the output hook"},
    {Change::pr7780, "#7780", "stage 3: micro_step_id moves at the next forward instead of in the epilogue"},
    {Change::pr7787, "#7787", "pipeline: the stages before the last run their backward as the engine's own, which stage 0 and dynamic loss scales demand"},
    {Change::pr7789, "#7789", "stages 1 and 2: empty parameters stay out of the reduction"},
    {Change::pr7788, "#7788", "bf16 with fp32 accumulation at stage 1 is served by BF16_Optimizer again"},
    {Change::pr7805, "#7805", "stages 1 and 2 with overlap_comm: clearing a bucket keeps its buffers in turn, and the wait of #7371 goes"},
    {Change::pr7839, "#7839", "stage 0 bf16: gradients are zeroed after the step, no scale of 65536 is divided out"},
    {Change::pr7898, "#7898", "stage 3 with overlap_comm: the reduction waits for the stream that made the gradient, not the default one"},
    {Change::pr7967, "#7967", "stage 1/2 offload: the host accumulator is always stored (ga > 1)"},
    {Change::pr7965, "#7965", "stages 1 and 2 with overlap_comm: a bucket's memory outlives the reduction that reads it"},
    {Change::pr7981, "#7981", "stage 1/2 offload: the host accumulator is used when more than one backward needs it, also at ga = 1"},
    {Change::pr7985, "#7985", "BF16_Optimizer: the boundary micro-batch is accumulated before the all-reduce"},
    {Change::pr7992, "#7992", "coalesce_grad_reduction is available"},
    {Change::pr8056, "#8056", "stage 3: a reduced gradient goes to the accumulator without a cast to the model dtype"},
    {Change::pr8068, "#8068", "gradient_clipping defaults to 1.0"},
    {Change::pr8035, "#8035", "bf16.check_grad_overflow defaults to true"},
    {Change::pr8080, "#8080", "stages 1 and 2 with overlap_comm: the reduction waits for every stream that wrote into the bucket"},
    {Change::pr8154, "#8154", "pipeline: 1/ga is applied once instead of once for each stage"},
    {Change::pr8184, "#8184", "unmanaged gradient accumulation is available at stages 0 and 1"},
    {Change::pr8203, "#8203", "unmanaged gradient accumulation is available at stage 2"},
    {Change::pr8217, "#8217", "unmanaged gradient accumulation is available at stage 3"},
    {Change::pr8207, "#8207", "offload: pin_memory defaults to true; stage 3: the host does not wait for the copy to a pinned master gradient"},
    {Change::pr8225, "#8225", "unmanaged gradient accumulation is available with offload"},
    {Change::pr8232, "#8232", "gradient_allreduce_op \"sum\" is honoured"},
    {Change::pr8280, "#8280", "stages 1 and 2: a parameter of size zero never comes to a bucket"},
    {Change::pr8245, "#8245", "engine.backward() divides the loss by gradient_accumulation_steps, and the output hook graphs of loss.backward() alone"},
    {Change::in_0_19_8, "0.19.8", "stages 1 and 2 with fp32 accumulation of a 16-bit model: the rank's partition accumulates reduced values in fp32; BF16_Optimizer takes a zero norm"},
}};

// Read off the published packages: the newest change that each contains. Releases are cut from one line of changes.
constexpr std::array<ReleaseInfo, 24> all_releases{{
    {"0.16.0", "0.16.5", Change::pr6675},
    {"0.16.6", "0.16.9", Change::pr7171},
    {"0.17.0", "0.17.0", Change::pr7302},
    {"0.17.1", "0.17.1", Change::pr6976},
    {"0.17.2", "0.17.2", Change::pr6993},
    {"0.17.3", "0.17.4", Change::pr7418},
    {"0.17.5", "0.17.5", Change::pr7371},
    {"0.17.6", "0.17.6", Change::pr7534},
    {"0.18.0", "0.18.0", Change::pr7580},
    {"0.18.1", "0.18.1", Change::pr7636},
    {"0.18.2", "0.18.2", Change::pr7660},
    {"0.18.3", "0.18.3", Change::pr7700},
    {"0.18.4", "0.18.4", Change::pr7724},
    {"0.18.5", "0.18.5", Change::pr7805},
    {"0.18.6", "0.18.7", Change::pr7839},
    {"0.18.8", "0.18.9", Change::pr7898},
    {"0.19.0", "0.19.0", Change::pr7985},
    {"0.19.1", "0.19.1", Change::pr7992},
    {"0.19.2", "0.19.2", Change::pr8056},
    {"0.19.3", "0.19.3", Change::pr8154},
    {"0.19.4", "0.19.4", Change::pr8217},
    {"0.19.5", "0.19.5", Change::pr8225},
    {"0.19.6", "0.19.7", Change::pr8245},
    {"0.19.8", "0.19.8", Change::in_0_19_8},
}};

// In 0.16.0, and not in 0.15.4.
constexpr Change first_of_known_releases = Change::pr6675;

// A fourth number is that of a patch release: "0.18.9.1", "0.16.9.post1".
using Version = std::array<int, 4>;

std::optional<Version> version_of(std::string_view text) {
  Version parts{};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i == 3 && text.starts_with("post")) text.remove_prefix(4);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parts[i]);
    if (error != std::errc{} || parts[i] < 0) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) return i < 2 ? std::nullopt : std::optional(parts);
    if (!text.starts_with('.')) return std::nullopt;
    text.remove_prefix(1);
  }
  return std::nullopt;
}

// The last line of releases that begins no later: that of a patch release, and of what is newer than all. None for what is older.
const ReleaseInfo* line_of(std::string_view as_of) {
  const auto version = version_of(as_of);
  const ReleaseInfo* line = nullptr;
  for (const ReleaseInfo& release : all_releases)
    if (version && *version_of(release.first) <= *version) line = &release;
  return line;
}

std::string what_is_known() {
  std::string text = "a release from " + std::string(all_releases.front().first) + " to " + std::string(all_releases.back().last) +
                     ", \"head\", or a change, as \"#7981\" (right after it) or \"before #7981\": ";
  for (const ChangeInfo& change : all_changes) {
    text += text.ends_with(": ") ? "" : ", ";
    text += change.name;
  }
  return text;
}

constexpr PointInHistory after(Change change) { return {static_cast<std::uint8_t>(static_cast<std::uint8_t>(change) + 1)}; }

std::optional<PointInHistory> known_point(std::string_view as_of) {
  if (as_of == "head") return head();
  const bool before = as_of.starts_with("before ");
  const std::string_view change_name = before ? as_of.substr(7) : as_of;
  for (const ChangeInfo& change : all_changes) {
    if (change.name != change_name) continue;
    return before ? PointInHistory{static_cast<std::uint8_t>(change.change)} : after(change.change);
  }
  const auto version = version_of(as_of);
  if (!version || (*version)[3] != 0) return std::nullopt;
  const ReleaseInfo* line = line_of(as_of);
  if (!line || *version > *version_of(line->last)) return std::nullopt;
  return after(line->newest);
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

std::string first_release(Change change) {
  if (change < first_of_known_releases) return "before " + std::string(all_releases.front().first);
  for (const ReleaseInfo& release : all_releases)
    if (change <= release.newest) return std::string(release.first);
  return "none";
}

PointInHistory head() { return {static_cast<std::uint8_t>(all_changes.size())}; }

Result<PointInHistory> point_named(std::string_view as_of, std::string_view where) {
  if (const auto point = known_point(as_of)) return *point;
  if (const ReleaseInfo* line = line_of(as_of)) return after(line->newest);
  return InputError{std::string(where), "unknown release or change \"" + std::string(as_of) + "\"; expected " + what_is_known() + hint(as_of)};
}

std::optional<std::string> point_note(std::string_view as_of) {
  const ReleaseInfo* line = known_point(as_of) ? nullptr : line_of(as_of);
  if (!line) return std::nullopt;
  Version version = *version_of(as_of);
  version[3] = 0;
  if (version > *version_of(all_releases.back().last))
    return std::string(as_of) + " is newer than every release that is known; taken as the newest of them, " + std::string(line->last);
  const std::string taken = line->first == line->last ? "" : "one of " + std::string(line->first) + " to ";
  return std::string(as_of) + " is no release that is known; taken as " + taken + std::string(line->last) + ". Say a change that it took over alone with a switch";
}

}  // namespace gradledger
