// The same work for many, on a few threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace gradledger::search {

// work(i) for every i below count, in any order, until stop() says so, which every thread asks before each. What was begun is finished: gives
// how many were done, and these are the first ones. The first exception by time is thrown again once all threads are done.
template <class Work, class Stop>
std::size_t in_parallel(std::size_t count, std::uint32_t jobs, Work&& work, Stop&& stop) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> ended{false};
  std::exception_ptr failure;
  std::mutex guard;
  const auto take = [&] {
    while (!ended) {
      if (stop()) {
        ended = true;
        return;
      }
      const std::size_t i = next++;
      if (i >= count) return;
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(guard);
        if (!failure) failure = std::current_exception();
        ended = true;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t j = 1; j < std::min<std::size_t>(jobs, count); ++j) threads.emplace_back(take);
    take();
  }
  if (failure) std::rethrow_exception(failure);
  return std::min<std::size_t>(next, count);
}

template <class Work>
void in_parallel(std::size_t count, std::uint32_t jobs, Work&& work) {
  in_parallel(count, jobs, std::forward<Work>(work), [] { return false; });
}

// Likewise, and take(i) for each in the order of their numbers, one at a time, as soon as it and all before it are done: what it does depends
// on no thread. It says whether to go on. Gives how many were taken; what was done beyond them is lost.
template <class Work, class Take, class Stop>
std::size_t in_order(std::size_t count, std::uint32_t jobs, Work&& work, Take&& take, Stop&& stop) {
  std::vector<char> done(count, 0);
  std::size_t taken = 0;
  std::atomic<bool> ended{false};
  std::mutex guard;
  in_parallel(
      count, jobs,
      [&](std::size_t i) {
        work(i);
        const std::lock_guard lock(guard);
        done[i] = 1;
        while (!ended && taken < count && done[taken]) ended = !take(taken++);
      },
      [&] { return ended || stop(); });
  return taken;
}

}  // namespace gradledger::search
