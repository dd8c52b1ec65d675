// Scenarios from a seed: worlds, parameters, configurations and scripts of events, drawn as a state machine that asks the framework what
// it takes.
#pragma once

#include <cstdint>
#include <vector>

#include "search/draw/variants.h"
#include "sim/scenario/timeline.h"

namespace gradledger::search {

// What a campaign draws from.
struct Profile {
  std::vector<const Variant*> variants;  // of one framework; empty: all of the default one
  AsOf as_of;
  std::uint32_t world_max = 4;
  std::uint32_t parameters_max = 3;
  std::uint32_t numel_max = 24;   // of a parameter
  std::uint32_t events_max = 20;  // of a script, about
  bool plain_loops = false;       // the loop that users of every framework write (search/draw/loops.h); of differential campaigns
  bool as_documented = false;     // only scripts in which a correct framework loses nothing
};

struct Drawn {
  Scenario scenario;  // admitted (sim/load.h)
  Timeline timeline;
};

const Framework& framework_of(const Profile& profile);

// Case `number` of a seed: the same on every machine, whatever was drawn before.
Drawn draw_case(const Profile& profile, std::uint64_t seed, std::uint64_t number);
Scenario draw(const Profile& profile, std::uint64_t seed, std::uint64_t number);

}  // namespace gradledger::search
