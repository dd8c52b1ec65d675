// All frames of a run as JSON lines, for people: --driver-log.
#pragma once

#include <chrono>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

namespace gradledger::driver {

class FrameLog {
 public:
  // Empty: nothing is written. std::runtime_error where the file cannot be.
  explicit FrameLog(const std::string& path);

  // from: "command" or "rank 0" or "host"; kind: of the connection.
  void add(const std::string& from, const std::string& to, const std::string& kind, const nlohmann::json& message);

 private:
  std::ofstream file_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace gradledger::driver
