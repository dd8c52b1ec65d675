#include "verbs/new_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "sim/base/files.h"

namespace gradledger::verbs {
namespace fs = std::filesystem;
namespace {

constexpr mode_t everybody = 0666;  // less what the user's mask takes away

InputError not_written(const fs::path& path, int error) { return {path.string(), std::string("cannot be written: ") + std::strerror(error)}; }

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// 0, or what went wrong.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n < 0 && errno != EINTR) return errno;
    if (n > 0) text.remove_prefix(static_cast<std::size_t>(n));
  }
  return fsync(descriptor) == 0 ? 0 : errno;
}

// A name is on the disk with the folder that holds it. Folders of some file systems cannot be synchronised, which loses nothing of the file.
void synchronise_folder(const fs::path& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  fsync(descriptor);
  close(descriptor);
}

}  // namespace

// A file without a name, which is gone with the process; where a file system has none, one with a hidden name.
struct Nameless {
  int descriptor = -1;
  std::string name;  // empty: none

  explicit Nameless(const fs::path& folder, bool needs_name) {
    if (!needs_name) descriptor = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, everybody);
    if (descriptor >= 0) return;
    static std::atomic<unsigned> files{0};
    name = (folder / fmt::format(".gradledger-{}-{}", getpid(), ++files)).string();
    descriptor = open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, everybody);
    if (descriptor < 0) name.clear();
  }
  ~Nameless() {
    if (descriptor >= 0) close(descriptor);
    if (!name.empty()) unlink(name.c_str());
  }
  Nameless(const Nameless&) = delete;
  Nameless& operator=(const Nameless&) = delete;

  // A link fails where the name is taken, which a renaming would overwrite.
  int link_as(const fs::path& path) const {
    const std::string from = name.empty() ? fmt::format("/proc/self/fd/{}", descriptor) : name;
    return linkat(AT_FDCWD, from.c_str(), AT_FDCWD, path.c_str(), name.empty() ? AT_SYMLINK_FOLLOW : 0) == 0 ? 0 : errno;
  }
};

namespace {

Result<bool> write_new(const fs::path& path, std::string_view text, bool needs_name) {
  const Nameless file(folder_of(path), needs_name);
  if (file.descriptor < 0) return not_written(path, errno);
  if (const int error = write_all(file.descriptor, text)) return not_written(path, error);
  const int error = file.link_as(path);
  if (error == EEXIST) return false;
  if (error != 0 && !needs_name && file.name.empty()) return write_new(path, text, true);  // without /proc
  if (error != 0) return not_written(path, error);
  synchronise_folder(folder_of(path));
  return true;
}

}  // namespace

Result<bool> write_new_file(const fs::path& path, std::string_view text) { return write_new(path, text, false); }

struct PendingFile::State {
  fs::path path;               // as the user has it
  fs::path there;              // what a link leads to
  std::optional<mode_t> mode;  // of what is there
  Nameless file;
};

PendingFile::PendingFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
PendingFile::PendingFile(PendingFile&&) noexcept = default;
PendingFile& PendingFile::operator=(PendingFile&&) noexcept = default;
PendingFile::~PendingFile() = default;

Result<PendingFile> PendingFile::at(const fs::path& path) {
  std::error_code failed;
  const fs::path there = fs::exists(path, failed) ? fs::canonical(path, failed) : path;
  if (failed) return not_written(path, failed.value());
  struct stat before {};
  const bool replaces = stat(there.c_str(), &before) == 0;
  if (replaces && S_ISDIR(before.st_mode)) return not_written(path, EISDIR);
  if (replaces && !S_ISREG(before.st_mode)) return InputError{path.string(), "is a device, a pipe or a socket; expected a regular file"};
  const bool without_proc = access("/proc/self/fd", X_OK) != 0;
  std::unique_ptr<State> state(new State{path, there, replaces ? std::optional(before.st_mode & 07777) : std::nullopt, Nameless(folder_of(there), without_proc)});
  if (state->file.descriptor < 0) return not_written(path, errno);
  return PendingFile(std::move(state));
}

fs::path PendingFile::writable() const { return state_->file.name.empty() ? fmt::format("/proc/self/fd/{}", state_->file.descriptor) : state_->file.name; }

std::optional<InputError> PendingFile::take_place() const {
  const auto& [path, there, mode, file] = *state_;
  if (mode) fchmod(file.descriptor, *mode);
  if (fsync(file.descriptor) != 0) return not_written(path, errno);
  // A name only once it is whole: one that a kill leaves behind is no half of a file.
  const fs::path next = folder_of(there) / fmt::format(".gradledger-{}.next", getpid());
  unlink(next.c_str());
  if (const int error = file.link_as(next)) return not_written(path, error);
  if (rename(next.c_str(), there.c_str()) != 0) return not_written(path, errno);
  synchronise_folder(folder_of(there));
  return std::nullopt;
}

Result<bool> replace_file(const fs::path& path, std::string_view text) {
  auto pending = PendingFile::at(path);
  if (!pending) return pending.error();
  if (auto error = write_file(pending->writable(), text)) return InputError{path.string(), error->message};
  if (auto error = pending->take_place()) return *error;
  return true;
}

bool is_written_through(const fs::path& path) {
  std::error_code failed;
  return !fs::is_regular_file(path, failed) && fs::exists(fs::symlink_status(path, failed));
}

std::optional<InputError> replace_or_write(const fs::path& path, std::string_view text) {
  if (is_written_through(path)) return write_file(path, text);
  const auto written = replace_file(path, text);
  return written ? std::nullopt : std::optional(written.error());
}

Result<fs::path> set_aside(const fs::path& path, std::string_view ending) {
  for (int number = 1;; ++number) {
    fs::path to = path;
    to += std::string(ending) + (number == 1 ? "" : std::to_string(number));
    if (link(path.c_str(), to.c_str()) == 0) {
      unlink(path.c_str());
      return to;
    }
    if (errno != EEXIST) return InputError{path.string(), std::string("cannot be renamed: ") + std::strerror(errno)};
  }
}

FolderLock::FolderLock(const fs::path& folder) : descriptor_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  while (descriptor_ >= 0 && flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) continue;
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace gradledger::verbs
