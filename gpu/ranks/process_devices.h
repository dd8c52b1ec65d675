// Each rank in a process of its own: the robust way, and the one over several machines. This side is the control plane.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/ranks/rank_process.h"
#include "gpu/ranks/wire.h"

namespace gradledger::gpu {

// Who starts the processes.
class RankLauncher {
 public:
  virtual ~RankLauncher() = default;
  // Starts the process that will connect as `address` says; throws std::runtime_error where it cannot. Nothing where someone else starts it.
  virtual void start(const RankAddress& address) = 0;
  // Why the process of a rank is no longer there, if that is known: "ended with code 5", "was ended by signal 9".
  virtual std::optional<std::string> ended(std::uint32_t rank) = 0;
  // No process that was started here is left when this returns.
  virtual void end_all() = 0;
};

// Starts `arguments` + {"--rank", N, "--address", A}; the secret travels in the environment. The processes end with this one.
std::unique_ptr<RankLauncher> spawning_launcher(std::vector<std::string> arguments);

// The variable that holds the secret of a run: 64 hexadecimal digits.
inline constexpr const char* token_variable = "GRADLEDGER_TOKEN";

// What a process knows that was started so: the arguments, and the secret from the environment. Errors name what is not right.
Result<RankAddress> spawned_address(std::uint32_t rank, const std::string& address);

// A host to listen at: whoever reaches the machine can knock.
inline constexpr const char* any_interface = "0.0.0.0";

// Where ranks connect.
struct Listening {
  std::optional<transport::Address> at;  // none: a Unix socket in a folder that nobody else can enter
  std::string secret;                    // empty: one is made
  std::uint32_t ranks = 0;               // that connect from the start, whatever the first run needs
};

class ProcessDevices final : public Devices {
 public:
  // deadline: of each answer that is waited for, the connection of a rank among them. Ranks start when they are first needed. DeviceFailure
  // where nobody can listen there.
  ProcessDevices(std::unique_ptr<RankLauncher> launcher, const Listening& listening, std::chrono::milliseconds deadline);
  ~ProcessDevices() override;

  void begin(std::uint32_t world) override;
  void enqueue(std::uint32_t rank, const Command& command, std::span<const double> values) override;
  void collective(std::span<const Participant> members) override;
  void fetch(std::uint32_t rank, Stream stream, std::span<const Operand> operands, std::vector<std::byte>& out) override;

  // What the ranks said of themselves, once they are there.
  const std::vector<Hello>& ranks() const;
  const transport::Address& address() const;  // where they knock

 private:
  class Control;
  std::unique_ptr<Control> control_;
};

}  // namespace gradledger::gpu
