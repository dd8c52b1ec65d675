// SIGINT and SIGTERM as something that loops look at, so that what was done so far is not lost.
#pragma once

namespace gradledger::tool {

// While one lives, the first of these signals is noted, and a second one ends the process at once. One at a time.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // The signal; 0: none yet. For any thread.
  static int signal();
  // What a shell makes of a process that the signal ended: 130 for SIGINT, 143 for SIGTERM; `otherwise` where there was none.
  static int exit_code_or(int otherwise);
  // "SIGINT", "SIGTERM"; empty where there was none.
  static const char* name();
};

// Writing to a pipe that nobody reads, or beyond the size that a file may have, is an error like others and ends no process.
void take_signals_of_writing_as_errors();

}  // namespace gradledger::tool
