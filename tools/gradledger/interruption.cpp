#include "tools/gradledger/interruption.h"

#include <csignal>

#include <atomic>

namespace gradledger::tool {
namespace {

std::atomic<int> noted{0};
static_assert(std::atomic<int>::is_always_lock_free, "a handler of signals takes no lock");

extern "C" void note(int signal) {
  if (noted.exchange(signal) == 0) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

Interruption::Interruption() {
  noted = 0;
  for (const int signal : {SIGINT, SIGTERM}) handle(signal, note);
}

Interruption::~Interruption() {
  for (const int signal : {SIGINT, SIGTERM}) handle(signal, SIG_DFL);
}

int Interruption::signal() { return noted; }

int Interruption::exit_code_or(int otherwise) { return noted == 0 ? otherwise : 128 + noted; }

const char* Interruption::name() { return noted == 0 ? "" : noted == SIGINT ? "SIGINT" : "SIGTERM"; }

void take_signals_of_writing_as_errors() {
  for (const int signal : {SIGPIPE, SIGXFSZ}) handle(signal, SIG_IGN);
}

}  // namespace gradledger::tool
