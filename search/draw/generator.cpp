#include "search/draw/generator.h"

#include <string>

#include "search/shrink/edits.h"
#include "search/draw/script.h"
#include "search/draw/swarm.h"
#include "search/draw/world.h"
#include "sim/base/hash.h"
#include "sim/engine/engine.h"
#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/framework.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/load.h"
#include "sim/scenario/layout.h"

namespace gradledger::search {
namespace {

// What is right of these depends on the release, or is the user's own doing.
void as_documented(Swarm& swarm) {
  using enum Feature;
  for (const Feature f : {tied, side_stream, hooked_outputs, used_by_some, expert_parallel, sequence_parallel, pipeline, predivide, summed, unmanaged, direct,
                          phases, uses, order, unscaled, set_gradient, overflow, some_ranks, raises, double_steps, own_forwards, zero_grads, frozen, wire_dtype, blocks})
    swarm.turn_off(f);
}

// What no release does right yet, however it is used: fp16 at stage 0, a loss scale that moves, another accumulation dtype at stages 1 and 2.
void leave_out_open_defects(Scenario& s) {
  DeepSpeedConfig& config = deepspeed_config(s);
  if (config.fp16.enabled && config.zero.stage == 0) {
    set_model_dtype(s, Dtype::bfloat16);
    config.fp16 = {};
  }
  config.fp16.loss_scale_window = Fp16Config{}.loss_scale_window;
  const auto engine = deepspeed::select_wrapper(s);
  if (engine.ok() && *engine == deepspeed::Wrapper::zero_stages_1_and_2) config.grad_accum_dtype.reset();
}

bool admitted(const Scenario& scenario) { return !layout_problem(scenario) && !admission_error(scenario); }

}  // namespace

Drawn draw_case(const Profile& profile, std::uint64_t seed, std::uint64_t number) {
  const auto behaviour = resolve_behaviour(profile.as_of);
  expects(behaviour.ok(), "a campaign's as_of was checked");
  // What is refused is drawn again, in the end with no features at all.
  constexpr std::uint32_t attempts_max = 64;
  for (std::uint32_t attempt = 0;; ++attempt) {
    expects(attempt < attempts_max, "a campaign's profile is served");
    Draws draws{rc::Random(hash_keys({seed, number, attempt}))};
    Swarm swarm(draws);
    if (profile.as_documented) as_documented(swarm);
    for (std::size_t f = 0; attempt >= attempts_max / 2 && f < feature_count; ++f) swarm.turn_off(static_cast<Feature>(f));
    Scenario out;
    out.name = "case-" + std::to_string(seed) + "-" + std::to_string(number);
    draw_world(profile, draws, swarm, out);
    if (profile.as_documented) leave_out_open_defects(out);
    if (select_engine(out).ok() == false) continue;
    draw_script(profile, *behaviour, draws, swarm, out);
    make_canonical(out);
    if (!admitted(out)) continue;
    auto timeline = make_timeline(out);
    if (timeline && profile.as_documented) ensures(framework_of(out).use_of(out, *timeline).misuses.empty(), "a documented case keeps to the documentation");
    if (timeline) return {std::move(out), std::move(timeline).value()};
  }
}

Scenario draw(const Profile& profile, std::uint64_t seed, std::uint64_t number) { return draw_case(profile, seed, number).scenario; }

}  // namespace gradledger::search
