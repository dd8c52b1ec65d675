// Loops that users of every framework write, from a seed: the same windows, however each framework spells them.
#pragma once

#include <cstdint>
#include <optional>

#include "search/draw/generator.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::search {

// Ranks, parameters and a loop, as a scenario of no framework in particular: each of its windows is backwards and a step, and those in no_sync
// may be left unreduced.
Scenario draw_loop(const Profile& profile, std::uint64_t seed, std::uint64_t number);

// The loop that such a script is. Nothing where it is none, or its windows differ in their micro-batches: one engine divides all by one number.
std::optional<PlainLoop> loop_of(const Scenario& scenario);

// The same loop on an engine, as its framework documents it. Leaves no script where the scenario is no loop.
void run_loop_on(const Variant& variant, Scenario& scenario);

}  // namespace gradledger::search
