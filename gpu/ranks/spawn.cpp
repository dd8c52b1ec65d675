// Processes of ranks on this machine.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "gpu/ranks/process_devices.h"
#include "sim/transport/secret.h"

extern char** environ;  // NOLINT: as POSIX has it

namespace gradledger::gpu {
namespace {

class SpawningLauncher final : public RankLauncher {
 public:
  explicit SpawningLauncher(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}
  ~SpawningLauncher() override { end_all(); }

  void start(const RankAddress& address) override {
    std::vector<std::string> words = arguments_;
    words.insert(words.end(), {"--rank", std::to_string(address.rank), "--address", address.coordinator.text()});
    const std::string token = std::string(token_variable) + "=";
    std::vector<std::string> variables{token + address.secret};
    for (char** variable = environ; *variable; ++variable)
      if (std::strncmp(*variable, token.c_str(), token.size()) != 0) variables.emplace_back(*variable);
    pid_t process = 0;
    const int error = posix_spawn(&process, words[0].c_str(), nullptr, nullptr, pointers(words).data(), pointers(variables).data());
    if (error != 0) throw std::runtime_error(words[0] + " cannot be started: " + std::strerror(error));
    processes_[address.rank] = {process, std::nullopt};
  }

  std::optional<std::string> ended(std::uint32_t rank) override {
    const auto found = processes_.find(rank);
    if (found == processes_.end()) return std::nullopt;
    Process& process = found->second;
    int status = 0;
    if (!process.how && waitpid(process.id, &status, WNOHANG) == process.id) process.how = describe(status);
    return process.how;
  }

  // Asked first, then made to.
  void end_all() override {
    for (const int signal : {SIGTERM, SIGKILL}) {
      for (auto& [rank, process] : processes_)
        if (!ended(rank)) kill(process.id, signal);
      for (int tries = 0; tries < 50 && any_left(); ++tries) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    for (auto& [rank, process] : processes_)
      if (!process.how) waitpid(process.id, nullptr, 0);
    processes_.clear();
  }

 private:
  struct Process {
    pid_t id = 0;
    std::optional<std::string> how;
  };

  static std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> out;
    for (std::string& word : words) out.push_back(word.data());
    out.push_back(nullptr);
    return out;
  }
  static std::string describe(int status) {
    if (WIFSIGNALED(status)) return "was ended by signal " + std::to_string(WTERMSIG(status));
    return "ended with code " + std::to_string(WEXITSTATUS(status));
  }
  bool any_left() {
    bool left = false;
    for (auto& [rank, process] : processes_) left = !ended(rank) || left;
    return left;
  }

  std::vector<std::string> arguments_;
  std::map<std::uint32_t, Process> processes_;
};

}  // namespace

std::unique_ptr<RankLauncher> spawning_launcher(std::vector<std::string> arguments) { return std::make_unique<SpawningLauncher>(std::move(arguments)); }

Result<RankAddress> spawned_address(std::uint32_t rank, const std::string& address) {
  auto coordinator = transport::Address::parse(address);
  if (!coordinator) return InputError{"--address", coordinator.error().message};
  const char* secret = std::getenv(token_variable);
  if (!secret || !transport::is_secret(secret)) return InputError{token_variable, "holds no secret; expected to be started by gradledger, which makes one"};
  return RankAddress{std::move(coordinator).value(), rank, secret};
}

}  // namespace gradledger::gpu
