#include "gpu/ranks/worker.h"

#include <chrono>
#include <exception>
#include <utility>

#include "sim/base/contract.h"

namespace gradledger::gpu {

Worker::Worker() : state_(std::make_shared<State>()), thread_([state = state_] { serve(state); }) {}

Worker::~Worker() {
  bool stuck = false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ends = true;
    stuck = state_->busy;
  }
  state_->changed.notify_all();
  if (stuck) thread_.detach();
  else thread_.join();
}

void Worker::start(std::function<void()> call) {
  {
    const std::lock_guard lock(state_->mutex);
    expects(!state_->busy, "a worker is given a call while another is under way");
    state_->call = std::move(call);
    state_->error.reset();
    state_->busy = true;
  }
  state_->changed.notify_all();
}

bool Worker::wait_until(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, deadline, [&] { return !state_->busy; });
}

std::optional<std::string> Worker::error() const {
  const std::lock_guard lock(state_->mutex);
  return state_->error;
}

void Worker::serve(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return state->busy || state->ends; });
    if (!state->busy) return;
    const std::function<void()> call = std::exchange(state->call, nullptr);
    lock.unlock();
    std::optional<std::string> error;
    try {
      call();
    } catch (const std::exception& thrown) {
      error = thrown.what();
    }
    lock.lock();
    state->error = std::move(error);
    state->busy = false;
    state->changed.notify_all();
  }
}

}  // namespace gradledger::gpu
