// The process that holds the framework and forks the ranks, and what it printed.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace gradledger::driver {

class HostProcess {
 public:
  // Starts `words` in a process group of its own, with `variables` ("NAME=value") over those of this process; what it prints goes to a file.
  // The first word is searched in PATH. std::runtime_error where it cannot be started.
  HostProcess(std::vector<std::string> words, const std::vector<std::string>& variables, const std::filesystem::path& output);
  // Ends it and all of its process group, and returns when none of them runs any more; after two seconds in any case.
  ~HostProcess();
  HostProcess(const HostProcess&) = delete;
  HostProcess& operator=(const HostProcess&) = delete;

  // How it ended, if it has: "ended with code 1", "was ended by signal 9".
  std::optional<std::string> ended();

 private:
  pid_t process_ = 0;
  std::optional<std::string> how_;
};

// The last lines of what a process printed, for people; empty where there is nothing.
std::string last_lines(const std::filesystem::path& output);

std::string described_end(int wait_status);

}  // namespace gradledger::driver
