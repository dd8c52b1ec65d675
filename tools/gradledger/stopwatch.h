// Seconds that something took.
#pragma once

#include <chrono>

namespace gradledger::tool {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  // Since it was made, or asked last.
  double lap() {
    const double out = seconds();
    begin_ = Clock::now();
    return out;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace gradledger::tool
