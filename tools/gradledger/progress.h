// How far a long run is, on standard error: on a terminal a line that is drawn again and again, elsewhere a line a minute.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

#include "tools/gradledger/stopwatch.h"

namespace gradledger::tool {

class Progress {
 public:
  struct Manner {
    bool terminal = false;
    std::chrono::milliseconds period{60'000};
  };
  // As standard error is.
  static Manner of_standard_error();

  explicit Progress(std::string text, Manner manner = of_standard_error(), std::FILE* to = stderr);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // What the line says from now on; the seconds are added to it.
  void set(std::string text);

  // While something else is printed, the line is not there.
  template <class Print>
  void aside(Print&& print) {
    const std::lock_guard lock(guard_);
    clear();
    print();
  }

  double seconds() const { return watch_.seconds(); }

 private:
  void draw();
  void clear();
  void put(const std::string& text);

  const Manner manner_;
  std::FILE* const to_;
  const Stopwatch watch_;
  std::mutex guard_;
  std::condition_variable_any wake_;
  std::string text_;
  bool drawn_ = false;
  std::jthread painter_;  // last: it uses the others
};

}  // namespace gradledger::tool
