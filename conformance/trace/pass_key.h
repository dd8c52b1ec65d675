// What a producer is asked for, as a number: the same data and options have the same one, whoever asks.
#pragma once

#include <cstdint>
#include <string>

#include "sim/scenario/timeline.h"
#include "sim/scenario/workload.h"
#include "sim/trace/producer.h"

namespace gradledger::conform {

// Of all gradients and first weights that the source gives, and of the options that decide what a run shows.
std::uint64_t key_of(const Workload& workload, const Timeline& timeline, const GradientSource& source, const RunOptions& options);

// "0123456789abcdef"
std::string key_text(std::uint64_t key);

}  // namespace gradledger::conform
