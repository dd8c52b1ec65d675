// A thread that runs one call at a time: calls of NCCL block until all ranks have made theirs.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace gradledger::gpu {

class Worker {
 public:
  Worker();
  // Waits for its call; where a call was given up on, the thread is left to itself.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Precondition: no call is under way.
  void start(std::function<void()> call);
  // Whether the call is over, waiting until `deadline` at most.
  bool wait_until(std::chrono::steady_clock::time_point deadline);
  // What the call threw, once it is over.
  std::optional<std::string> error() const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::function<void()> call;
    bool busy = false, ends = false;
    std::optional<std::string> error;
  };
  static void serve(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;  // shared with a thread that may outlive this
  std::thread thread_;
};

}  // namespace gradledger::gpu
