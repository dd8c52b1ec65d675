// gradledger explore: its options.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "search/sequences/explore.h"
#include "tools/gradledger/options.h"

namespace gradledger::tool {

class Output;

struct ExploreVerb {
  std::string file;                  // a scenario whose world is explored; empty: a small one for each engine
  std::vector<std::string> engines;  // without a file; empty: all
  std::string as_of;                 // empty: head, or what the file says
  std::vector<std::string> switches;
  std::uint32_t world_size = 2;       // without a file
  std::uint32_t tensor_parallel = 1;  // likewise: ranks of the world that hold one copy of the model together
  std::string alphabet;               // comma-separated; empty: the engine's eight
  std::uint32_t length = 7;
  std::uint64_t states_max = 4'000'000;
  std::optional<std::uint64_t> time_s;
  std::uint32_t jobs = 1;
  bool mpi = false;         // with the processes that mpirun started
  bool any_script = false;  // also sequences that leave the documentation
  bool streams = false;     // all orders of the streams of the file's script instead
};

// The command that repeats the run.
std::string repeat_command(const Options& options, const ExploreVerb& verb);

int explore_streams_of(const Options& options, const ExploreVerb& verb, const Output& out);

}  // namespace gradledger::tool
