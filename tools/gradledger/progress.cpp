#include "tools/gradledger/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "tools/gradledger/verbs.h"

namespace gradledger::tool {
namespace {

std::size_t columns_of(std::FILE* to) {
  struct winsize size {};
  constexpr std::size_t otherwise = 80;
  return ioctl(fileno(to), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : otherwise;
}

}  // namespace

Progress::Manner Progress::of_standard_error() {
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::string_view(term) == "dumb" || *term == '\0';
  if (isatty(STDERR_FILENO) != 0 && !dumb) return {true, std::chrono::milliseconds(200)};
  return {};
}

Progress::Progress(std::string text, Manner manner, std::FILE* to) : manner_(manner), to_(to), text_(std::move(text)) {
  painter_ = std::jthread([this](const std::stop_token& ended) {
    std::unique_lock lock(guard_);
    while (!ended.stop_requested()) {
      wake_.wait_for(lock, ended, manner_.period, [] { return false; });
      if (!ended.stop_requested()) draw();
    }
  });
}

Progress::~Progress() {
  painter_.request_stop();
  painter_.join();
  clear();
}

void Progress::set(std::string text) {
  const std::lock_guard lock(guard_);
  text_ = std::move(text);
}

void Progress::draw() {
  const std::string line = one_line(fmt::format("{:.0f} s: {}", seconds(), text_));
  if (!manner_.terminal) {
    put(line + "\n");
  } else {
    put("\r\033[K" + line.substr(0, columns_of(to_) - 1));
    drawn_ = true;
  }
}

void Progress::clear() {
  if (!drawn_) return;
  put("\r\033[K");
  drawn_ = false;
}

// Where it cannot be written there is nobody to tell.
void Progress::put(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), to_);
  std::fflush(to_);
}

}  // namespace gradledger::tool
