#include "sim/frameworks/deepspeed/legality.h"

#include <algorithm>
#include <array>

namespace gradledger {
namespace {

template <std::size_t N>
struct Text {
  char at[N];
  constexpr Text(const char (&text)[N]) { std::copy_n(text, N, at); }
};

template <Text text>
std::string says(const Protocol&) {
  return text.at;
}

std::string of_stage(const Protocol& p) { return "no_sync is refused: ZeRO stage " + std::to_string(p.config().zero.stage) + " partitions gradients"; }

bool looks_at_direct(const Protocol& p) { return p.behaviour->direct_epilogue != DirectEpilogue::none; }

using enum EventKind;

constexpr std::array<LegalityRule, 12> rules{{
    {set_boundary, false, [](const Protocol& p) { return p.unmanaged() && p.behaviour->unmanaged_override == UnmanagedOverride::refused; }, "AssertionError",
     says<"set_gradient_accumulation_boundary() is refused: accumulation is not managed">},

    {no_sync_enter, false, [](const Protocol& p) { return p.config().zero.stage >= 2; }, "AssertionError", of_stage},
    {no_sync_enter, false, [](const Protocol& p) { return p.in_block; }, "AssertionError", says<"no_sync is refused inside no_sync">},

    // DeepSpeed#7992
    {coalesce_enter, false, [](const Protocol& p) { return p.behaviour->coalesce == Coalesce::absent; }, "AttributeError",
     says<"'DeepSpeedEngine' object has no attribute 'coalesce_grad_reduction'">},
    {coalesce_enter, false, [](const Protocol& p) { return p.unmanaged(); }, "AssertionError", says<"coalesce_grad_reduction is refused: accumulation is not managed">},
    {coalesce_enter, false, [](const Protocol& p) { return p.config().zero.stage == 0; }, "NotImplementedError", says<"coalesce_grad_reduction is refused at ZeRO stage 0">},
    {coalesce_enter, false, [](const Protocol& p) { return p.scenario->engine.pipeline_stages > 1; }, "NotImplementedError",
     says<"coalesce_grad_reduction is refused: a pipeline schedules its own reductions">},
    {coalesce_enter, false, [](const Protocol& p) { return !p.reduces_by_parameter; }, "NotImplementedError",
     says<"coalesce_grad_reduction is refused: the wrapper does not reduce by parameter">},
    {coalesce_enter, false, [](const Protocol& p) { return p.in_block; }, "AssertionError", says<"coalesce_grad_reduction is refused inside no_sync or itself">},

    // Where loss.backward() may stand in for engine.backward(loss). Before DeepSpeed#7665 nobody looked.
    {backward, true, [](const Protocol& p) { return looks_at_direct(p) && !p.zero_wrapper; }, "RuntimeError", says<"loss.backward() is refused: it needs a wrapper of ZeRO">},
    {backward, true, [](const Protocol& p) { return looks_at_direct(p) && p.config().fp16.enabled && p.config().fp16.loss_scale == 0; }, "RuntimeError",
     says<"loss.backward() needs engine.scale(loss) with a dynamic loss scale">},

    {step, false, [](const Protocol& p) { return p.in_block; }, "AssertionError", says<"step() is refused inside no_sync or coalesce_grad_reduction">},
}};

}  // namespace

std::span<const LegalityRule> legality_rules() { return rules; }

Protocol protocol_of(const Scenario& scenario, const Behaviour& behaviour, deepspeed::Wrapper wrapper) {
  using enum deepspeed::Wrapper;
  const bool by_parameter = wrapper == zero_stages_1_and_2 || wrapper == zero_stage_3;
  return {&scenario, &behaviour, false, by_parameter, by_parameter || wrapper == bf16};
}

std::optional<FrameworkError> refusal_of(const Protocol& protocol, EventKind event, bool direct) {
  for (const LegalityRule& rule : rules)
    if (rule.event == event && (direct || !rule.direct_only) && rule.applies(protocol)) return FrameworkError{std::string(rule.type), rule.message(protocol)};
  return std::nullopt;
}

}  // namespace gradledger
