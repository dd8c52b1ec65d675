// What decided gradients of fully_shard in another way in earlier releases, as switches. behaviour.cpp has their rows.
#pragma once

#include <cstdint>

#include "sim/base/result.h"
#include "sim/frameworks/torch/history/wrapper_history.h"
#include "sim/frameworks/watched_switch.h"

namespace gradledger::torch::fully_shard {

// In the order of the rows, and of their values.
enum class FinalReduction : std::uint8_t { of_unsharded_modules, of_unreduced_modules };
enum class AllReducedMemory : std::uint8_t { released, held };
enum class DivideFactor : std::uint8_t { of_reduce_scatter, of_average, of_average_by_shards };
enum class OffloadEvent : std::uint8_t { reduce_scatter_stream, last_stream };
enum class OneRankShard : std::uint8_t { reduced, copied };
enum class AbortedModule : std::uint8_t { raises, gathered };
enum class GradientDtype : std::uint8_t { of_computation, of_parameter };
enum class PartialSums : std::uint8_t { by_place, by_parameter };
enum class Reset : std::uint8_t { keeps_gradients, drops_gradients };
enum class RootAfterForward : std::uint8_t { gathered, as_given };

struct Behaviour {
  Watched<FinalReduction> final_reduction{FinalReduction::of_unreduced_modules};
  Watched<AllReducedMemory> all_reduced_memory{AllReducedMemory::held};
  Watched<DivideFactor> divide_factor{DivideFactor::of_average_by_shards};
  Watched<OffloadEvent> offload_event{OffloadEvent::last_stream};
  Watched<OneRankShard> one_rank_shard{OneRankShard::copied};
  Watched<AbortedModule> aborted_module{AbortedModule::gathered};
  Watched<GradientDtype> gradient_dtype{GradientDtype::of_parameter};
  Watched<PartialSums> partial_sums{PartialSums::by_parameter};
  Watched<Reset> reset{Reset::drops_gradients};
  Watched<RootAfterForward> root_after_forward{RootAfterForward::as_given};
};

const WrapperHistory& history();

// Errors: an unknown release, switch or value.
Result<Behaviour> behaviour_at(const AsOf& as_of);

}  // namespace gradledger::torch::fully_shard
