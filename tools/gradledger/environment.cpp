#include "tools/gradledger/environment.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

extern char** environ;

namespace gradledger::tool {
namespace {

constexpr auto answer_within = std::chrono::seconds(60);
constexpr std::size_t answer_bytes_max = 1u << 24;

constexpr const char* question =
    "import importlib.metadata as m, json, sys; "
    "json.dump({str(d.metadata['Name']): str(d.version) for d in m.distributions() if d.metadata['Name']}, sys.stdout)";

// What a process writes to its standard output; nothing where it takes too long or writes too much.
bool read_all(int from, std::string& into) {
  const auto until = std::chrono::steady_clock::now() + answer_within;
  std::array<char, 65536> piece{};
  while (into.size() <= answer_bytes_max) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    pollfd waiting{from, POLLIN, 0};
    const int ready = left <= 0 ? 0 : poll(&waiting, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = read(from, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) return true;
    into.append(piece.data(), static_cast<std::size_t>(got));
  }
  return false;
}

}  // namespace

Result<loops::Releases> installed_releases(const std::string& python) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return InputError{"--python", std::string("cannot be asked: ") + std::strerror(errno)};
  posix_spawn_file_actions_t streams;
  posix_spawn_file_actions_init(&streams);
  posix_spawn_file_actions_addopen(&streams, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&streams, ends[1], 1);
  posix_spawn_file_actions_addopen(&streams, 2, "/dev/null", O_WRONLY, 0);
  std::string program = python, isolated = "-I", command = "-c", text = question;
  std::array<char*, 5> words{program.data(), isolated.data(), command.data(), text.data(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawnp(&child, python.c_str(), &streams, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&streams);
  close(ends[1]);
  if (failed != 0) {
    close(ends[0]);
    return InputError{"--python", python + " cannot be run: " + std::strerror(failed) + "; expected a Python interpreter"};
  }
  std::string out;
  const bool whole = read_all(ends[0], out);
  close(ends[0]);
  if (!whole) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  if (!whole) return InputError{"--python", python + " did not list its packages within a minute"};
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return InputError{"--python", python + " failed when it was asked for its packages; expected Python 3.8 or newer"};
  return loops::releases_of_json(out, "--python");
}

}  // namespace gradledger::tool
