// A fault that every campaign plants first, and must find: one that cannot find it proves nothing by finding nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gradledger::search {

inline constexpr std::string_view canary_name = "micro-batch-lost";  // of search/mutants
inline constexpr std::uint32_t canary_cases_max = 64;

// Cases until the oracle reported the fault; nothing where it did not within canary_cases_max.
std::optional<std::uint32_t> cases_until_canary(std::uint64_t seed);

// Likewise of a differential campaign: cases until the engine with the fault and the one without applied different gradients.
std::optional<std::uint32_t> cases_until_differ_canary(std::uint64_t seed);

}  // namespace gradledger::search
