// What torchrun, mpirun or srun tell a process that they started. They are the distributed engine; gradledger has none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/ranks/process_devices.h"
#include "sim/base/result.h"

namespace gradledger::gpu {

struct LaunchEnvironment {
  std::uint32_t rank = 0, world = 1;
  std::string host;        // of the first rank
  std::uint16_t port = 0;  // at which it waits for the others: $GRADLEDGER_PORT, or one above $MASTER_PORT, which torchrun needs itself
  std::string secret;      // $GRADLEDGER_TOKEN, or what the file $GRADLEDGER_TOKEN_FILE holds

  RankAddress address() const { return {transport::Address::tcp(host, port), rank, secret}; }
};

// The variable that names a file with the secret, by an absolute path. Nobody but its owner, the user, may read it.
inline constexpr const char* token_file_variable = "GRADLEDGER_TOKEN_FILE";

// RANK, WORLD_SIZE and MASTER_ADDR of torchrun; OMPI_COMM_WORLD_RANK and _SIZE of mpirun; SLURM_PROCID and SLURM_NTASKS of srun. The error
// names the variable that is missing or wrong. There is no secret unless somebody gives one: a number of the job can be guessed.
Result<LaunchEnvironment> launch_environment();

// The first rank's side: all ranks but its own are started by the launcher; its own is `arguments`, as for spawning_launcher.
std::unique_ptr<ProcessDevices> devices_of_launcher(const LaunchEnvironment& environment, std::vector<std::string> arguments, std::chrono::milliseconds deadline);

}  // namespace gradledger::gpu
