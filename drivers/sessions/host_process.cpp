#include "drivers/sessions/host_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>

extern char** environ;  // NOLINT: as POSIX has it

namespace gradledger::driver {
namespace {

constexpr std::streamoff shown_bytes_max = 8 << 10;
constexpr std::size_t shown_lines_max = 20;

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> environment(const std::vector<std::string>& variables) {
  const auto name = [](std::string_view variable) { return variable.substr(0, variable.find('=')); };
  std::vector<std::string> out = variables;
  for (char** variable = environ; *variable; ++variable)
    if (std::none_of(variables.begin(), variables.end(), [&](const std::string& own) { return name(own) == name(*variable); })) out.emplace_back(*variable);
  return out;
}

// One that has ended and that nobody has asked about is still listed, as a zombie. One that ends while it is read fails the stream, where a buffer would throw.
bool runs_in_group(const std::filesystem::path& process, pid_t group) {
  std::ifstream file(process / "stat");
  std::string line(1 << 10, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(file.gcount()));
  const std::size_t name_end = line.rfind(')');  // a name may hold a space
  if (name_end == std::string::npos) return false;
  std::istringstream rest(line.substr(name_end + 1));
  char state = 'X';
  pid_t parent = 0, of = 0;
  return rest >> state >> parent >> of && of == group && state != 'Z' && state != 'X';
}

bool any_runs(pid_t group) {
  std::error_code gone;  // processes come and go while they are listed
  for (std::filesystem::directory_iterator at("/proc", gone), end; !gone && at != end; at.increment(gone))
    if (std::isdigit(static_cast<unsigned char>(at->path().filename().native()[0])) && runs_in_group(at->path(), group)) return true;
  return false;
}

// Processes run for a moment after the signal; this returns when none does, after two seconds in any case.
void wait_until_gone(pid_t group) {
  for (int tries = 0; tries < 200 && any_runs(group); ++tries) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace

HostProcess::HostProcess(std::vector<std::string> words, const std::vector<std::string>& variables, const std::filesystem::path& output) {
  std::vector<std::string> all = environment(variables);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawnp(&process_, words[0].c_str(), &actions, &attributes, pointers(words).data(), pointers(all).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) throw std::runtime_error(words[0] + " cannot be started: " + std::strerror(error));
}

HostProcess::~HostProcess() {
  kill(-process_, SIGKILL);  // the group: ranks among them
  if (!ended()) {
    int status = 0;
    waitpid(process_, &status, 0);
  }
  wait_until_gone(process_);
}

std::optional<std::string> HostProcess::ended() {
  int status = 0;
  if (!how_ && waitpid(process_, &status, WNOHANG) == process_) how_ = described_end(status);
  return how_;
}

std::string last_lines(const std::filesystem::path& output) {
  std::ifstream file(output, std::ios::binary);
  if (!file.seekg(0, std::ios::end)) return "";
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - shown_bytes_max));
  std::string text(static_cast<std::size_t>(std::min(size, shown_bytes_max)), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  while (text.ends_with('\n')) text.pop_back();
  std::size_t begin = text.size();
  for (std::size_t lines = 0; lines < shown_lines_max && begin != std::string::npos && begin > 0; ++lines) begin = text.rfind('\n', begin - 1);
  return begin == std::string::npos || begin == 0 ? text : text.substr(begin + 1);
}

std::string described_end(int wait_status) {
  if (WIFSIGNALED(wait_status)) return "was ended by signal " + std::to_string(WTERMSIG(wait_status));
  return "ended with code " + std::to_string(WEXITSTATUS(wait_status));
}

}  // namespace gradledger::driver
