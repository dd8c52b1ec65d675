#include "sim/scenario/event.h"

#include <algorithm>

#include "sim/base/overloaded.h"

namespace gradledger {

std::string_view name_of(EventKind kind) {
  switch (kind) {
    case EventKind::forward: return "forward";
    case EventKind::backward: return "backward";
    case EventKind::set_boundary: return "set_boundary";
    case EventKind::no_sync_enter: return "no_sync enter";
    case EventKind::no_sync_exit: return "no_sync exit";
    case EventKind::coalesce_enter: return "coalesce enter";
    case EventKind::coalesce_exit: return "coalesce exit";
    case EventKind::step: return "step";
    case EventKind::engine_zero_grad: return "engine.zero_grad";
    case EventKind::optimizer_zero_grad: return "optimizer.zero_grad";
    case EventKind::set_gradient: return "set_gradient";
    case EventKind::raise: return "raise";
    case EventKind::scale_gradients: return "scale_gradients";
    case EventKind::clip_gradients: return "clip";
    case EventKind::all_reduce: return "all_reduce";
    case EventKind::finalize: return "finalize";
    case EventKind::save: return "save";
    case EventKind::restore: return "restore";
    case EventKind::unscale: return "unscale";
    case EventKind::of_framework: return "event of the framework";
  }
  return "";
}

bool Event::runs_on(std::uint32_t rank) const { return !nobody && (ranks.empty() || std::binary_search(ranks.begin(), ranks.end(), rank)); }

bool Event::touches_gradients() const {
  using namespace events;
  return std::visit(overloaded{[](const one_of<ScaleGradients, ClipGradients, Finalize, Restore> auto&) { return true; }, [](const AllReduce& event) { return event.of_gradients; },
                               [](const one_of<Forward, events::Backward, SetBoundary, EnterNoSync, ExitNoSync, EnterCoalesce, ExitCoalesce, Step, EngineZeroGrad,
                                               OptimizerZeroGrad, SetGradient, Raise, Save, Unscale, OfFramework> auto&) { return false; }},
                    body);
}

}  // namespace gradledger
