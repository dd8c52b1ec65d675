#include "gpu/ranks/launch_environment.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>

namespace gradledger::gpu {
namespace {

// The first variable that is set.
const char* first_set(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value && *value) return value;
  return nullptr;
}

Result<std::uint32_t> number(std::initializer_list<const char*> names, std::uint32_t max) {
  const char* text = first_set(names);
  if (!text) return InputError{*names.begin(), "is not set; expected to be started by torchrun, mpirun or srun, which set it"};
  std::uint32_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, value);
  if (error != std::errc{} || at != end || value > max) return InputError{*names.begin(), std::string("is \"") + text + "\"; expected a number up to " + std::to_string(max)};
  return value;
}

// Starts its own rank; the others were started with this process.
class RootLauncher final : public RankLauncher {
 public:
  RootLauncher(const LaunchEnvironment& environment, std::vector<std::string> arguments) : world_(environment.world), own_(spawning_launcher(std::move(arguments))) {}

  void start(const RankAddress& address) override {
    if (address.rank >= world_) throw std::runtime_error("a scenario has more ranks than the " + std::to_string(world_) + " that were launched");
    if (address.rank == 0) own_->start(address);
  }
  std::optional<std::string> ended(std::uint32_t rank) override { return rank == 0 ? own_->ended(0) : std::nullopt; }
  void end_all() override { own_->end_all(); }

 private:
  std::uint32_t world_;
  std::unique_ptr<RankLauncher> own_;
};

}  // namespace

Result<LaunchEnvironment> launch_environment() {
  LaunchEnvironment out;
  constexpr std::uint32_t any = std::numeric_limits<std::uint32_t>::max();
  const auto world = number({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"}, any);
  if (!world) return world.error();
  const auto rank = number({"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}, any);
  if (!rank) return rank.error();
  if (*rank >= *world) return InputError{"RANK", "is " + std::to_string(*rank) + ", not below WORLD_SIZE, " + std::to_string(*world)};
  const char* host = first_set({"MASTER_ADDR"});
  if (!host) return InputError{"MASTER_ADDR", "is not set; expected the host of rank 0"};
  constexpr std::uint32_t port_max = std::numeric_limits<std::uint16_t>::max();
  const bool own_port = first_set({"GRADLEDGER_PORT"}) != nullptr;
  const auto port = own_port ? number({"GRADLEDGER_PORT"}, port_max) : number({"MASTER_PORT"}, port_max - 1);
  if (!port) return port.error();
  const char* token = first_set({token_variable, "TORCHELASTIC_RUN_ID", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID"});
  return LaunchEnvironment{*rank, *world, host, static_cast<std::uint16_t>(own_port ? *port : *port + 1), token ? token : "gradledger"};
}

std::unique_ptr<ProcessDevices> devices_of_launcher(const LaunchEnvironment& environment, std::vector<std::string> arguments, std::chrono::milliseconds deadline) {
  const Listening listening{.on_loopback = false, .port = environment.port, .token = environment.token, .ranks = environment.world};
  return std::make_unique<ProcessDevices>(std::make_unique<RootLauncher>(environment, std::move(arguments)), listening, deadline);
}

}  // namespace gradledger::gpu
