#include "gpu/ranks/launch_environment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "sim/transport/secret.h"

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

constexpr const char* what_a_secret_is = "expected 64 hexadecimal digits, as `openssl rand -hex 32` makes them";

// Of a file that nobody else can have read. The descriptor is asked, not the path: another file may lie there by then.
Result<std::string> secret_in(const char* path) {
  if (path[0] != '/') return InputError{token_file_variable, std::string("is \"") + path + "\", a relative path; expected an absolute one"};
  const auto refused = [&](const std::string& why) { return InputError{token_file_variable, std::string(path) + " " + why}; };
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (file < 0) return refused(std::string("cannot be read: ") + std::strerror(errno));
  struct stat facts {};
  std::array<char, transport::secret_bytes + 2> text{};
  const bool known = fstat(file, &facts) == 0;
  const bool regular = known && S_ISREG(facts.st_mode);
  const ssize_t bytes = regular ? read(file, text.data(), text.size()) : -1;
  close(file);
  if (!regular) return refused("is no file");
  if (facts.st_uid != geteuid() || (facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) return refused("may be read by others; expected a file of the user's own with mode 600");
  std::string secret(text.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  if (secret.ends_with('\n')) secret.pop_back();
  if (!transport::is_secret(secret)) return refused(std::string("holds something else than a secret; ") + what_a_secret_is);
  return secret;
}

Result<std::string> secret_of_the_run() {
  if (const char* given = first_set({token_variable})) {
    if (!transport::is_secret(given)) return InputError{token_variable, std::string("is no secret; ") + what_a_secret_is};  // and is not shown
    return std::string(given);
  }
  if (const char* path = first_set({token_file_variable})) return secret_in(path);
  return InputError{"--ranks", std::string("\"launcher\" needs a secret that all ranks know and nobody else, in the variable ") + token_variable + " or in a file that " +
                                   token_file_variable + " names; " + what_a_secret_is};
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
  auto secret = secret_of_the_run();
  if (!secret) return secret.error();
  return LaunchEnvironment{*rank, *world, host, static_cast<std::uint16_t>(own_port ? *port : *port + 1), std::move(secret).value()};
}

std::unique_ptr<ProcessDevices> devices_of_launcher(const LaunchEnvironment& environment, std::vector<std::string> arguments, std::chrono::milliseconds deadline) {
  const Listening listening{.at = transport::Address::tcp(any_interface, environment.port), .secret = environment.secret, .ranks = environment.world};
  return std::make_unique<ProcessDevices>(std::make_unique<RootLauncher>(environment, std::move(arguments)), listening, deadline);
}

}  // namespace gradledger::gpu
