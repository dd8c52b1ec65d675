// Scenarios from a seed: worlds, parameters, configurations and scripts of events, drawn as a state machine that knows what a framework
// refuses.
#pragma once

#include <cstdint>
#include <vector>

#include "search/draw/variants.h"
#include "sim/scenario/timeline.h"

namespace gradledger::search {

// What a campaign draws from.
struct Profile {
  std::vector<const Variant*> variants;  // empty: all
  AsOf as_of;
  std::uint32_t world_max = 4;
  std::uint32_t parameters_max = 3;
  std::uint32_t numel_max = 24;   // of a parameter
  std::uint32_t events_max = 20;  // of a script, about
  bool as_documented = false;     // only scripts in which a correct framework loses nothing
};

struct Drawn {
  Scenario scenario;  // admitted (sim/load.h)
  Timeline timeline;
};

// Case `number` of a seed: the same on every machine, whatever was drawn before.
Drawn draw_case(const Profile& profile, std::uint64_t seed, std::uint64_t number);
Scenario draw(const Profile& profile, std::uint64_t seed, std::uint64_t number);

}  // namespace gradledger::search
