// Ranks of a real framework in processes on this machine, warm from one run to the next. Docs: docs/driver-protocol.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/producers/driver/ranks.h"

namespace gradledger::driver {

struct SessionOptions {
  std::string driver;                    // a name that the Python package knows, or "module:factory"
  std::string program;                   // that is the host itself, in place of Python; empty: none
  std::string python = "python3";        // that has the framework
  std::vector<std::string> python_path;  // folders that its modules are searched in first; the package of drivers among them
  std::string backend = "gradledger";    // of the process group: gradledger, gloo or nccl
  std::string deliver = "eager";         // results of asynchronous collectives: eager, late or seeded
  bool virtual_streams = false;          // ranks make streams of their own where there are none, and tell what is done on them
  std::uint64_t seed = 0;
  std::chrono::milliseconds deadline = std::chrono::seconds(120);  // of every answer
  std::string log;                                                 // a file for all frames, as JSON lines; empty: none
};

// Where the size of the world changes often, worlds of a few sizes stay, each with a host of its own. With a log there is one world at a time: its file has
// the messages of one host.
class ProcessRanks final : public DriverRanks {
 public:
  // Nothing is started before it is needed. std::runtime_error where the log cannot be written.
  explicit ProcessRanks(SessionOptions options);
  // No process that was started here is left when this returns.
  ~ProcessRanks() override;

  const DriverHello& hello() override;
  void provide(std::uint32_t world_size, bool fresh) override;
  void send(std::uint32_t rank, Channel channel, const nlohmann::json& message) override;
  std::optional<Incoming> poll() override;
  Incoming next(std::span<const std::uint32_t> owing) override;

 private:
  class Sessions;
  struct World {
    std::unique_ptr<Sessions> sessions;
    bool is_broken_off = false;  // its last run left it in the middle of something
  };

  void add();
  void choose(std::uint32_t world_size);

  SessionOptions options_;
  std::vector<World> worlds_;
  std::size_t current_ = 0;
  std::uint32_t changes_ = 0;  // of the size, that ended ranks
};

}  // namespace gradledger::driver
