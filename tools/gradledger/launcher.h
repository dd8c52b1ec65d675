// Which of how many processes this one is, as whatever started it says in the environment.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/result.h"

namespace gradledger::tool {

struct Launched {
  std::uint32_t number = 0, of = 1;
  std::string launcher;                                        // "Slurm array with OpenMPI"
  std::vector<std::pair<std::string, std::string>> variables;  // that were read, with their values

  bool operator==(const Launched&) const = default;
};

// Null where a variable is not set, as getenv().
using Environment = std::function<const char*(const char* name)>;

// Jobs are counted by a Slurm array or a Kubernetes Job, the processes of one by torchrun, OpenMPI, MPICH or srun; where both do, each job has as many shards as it has
// processes. Errors, of --shard: nothing is set, or half of what is needed; no number; a number that is too large; two that disagree.
Result<Launched> launched(const Environment& environment);

}  // namespace gradledger::tool
