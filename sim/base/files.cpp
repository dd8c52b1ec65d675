#include "sim/base/files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace gradledger {
namespace {

std::string reason() { return std::generic_category().message(errno); }

InputError not_readable(const std::string& path) { return {path, "cannot be read: " + reason()}; }

int open_again(const char* path, int flags) {
  int descriptor = -1;
  do descriptor = ::open(path, flags | O_CLOEXEC | O_NOCTTY, 0666);
  while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

InputError too_large(const std::string& path, std::uint64_t bytes_max) { return {path, "is larger than is read; expected at most " + std::to_string(bytes_max) + " bytes"}; }

// What was read of standard input, if it was.
std::optional<std::string>& taken() {
  static std::optional<std::string> text;
  return text;
}

// Also where somebody has set it to return at once.
ssize_t read_some(int descriptor, char* into, std::size_t n) {
  while (true) {
    const ssize_t done = ::read(descriptor, into, n);
    if (done >= 0 || (errno != EINTR && errno != EAGAIN)) return done;
    pollfd ready{descriptor, POLLIN, 0};
    if (errno == EAGAIN) ::poll(&ready, 1, -1);
  }
}

}  // namespace

std::optional<InputError> take_standard_input(std::uint64_t bytes_max) {
  expects(!taken(), "standard input is read once");
  const std::string name = standard_input_name;
  if (::isatty(STDIN_FILENO) != 0) return InputError{name, "is a terminal; expected a pipe or a file, as in: gradledger VERB - < FILE"};
  std::string text, chunk(std::size_t{1} << 16, '\0');
  while (true) {
    const ssize_t n = read_some(STDIN_FILENO, chunk.data(), chunk.size());
    if (n < 0) return not_readable(name);
    if (n == 0) break;
    text.append(chunk, 0, static_cast<std::size_t>(n));
    if (text.size() > bytes_max) return too_large(name, bytes_max);
  }
  if (text.empty()) return InputError{name, "is empty or closed; expected what a file would hold"};
  taken() = std::move(text);
  return std::nullopt;
}

bool is_standard_input(const std::filesystem::path& path) { return taken() && path.native() == standard_input_name; }

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

OpenFile::~OpenFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int OpenFile::release() noexcept { return std::exchange(descriptor_, -1); }

Result<InputFile> InputFile::open(const std::filesystem::path& path, std::uint64_t bytes_max) {
  const std::string& name = path.native();
  if (is_standard_input(path)) {
    if (taken()->size() > bytes_max) return too_large(name, bytes_max);
    return InputFile(OpenFile(-1), taken()->size(), name, *taken());
  }
  if (name.find('\0') != std::string::npos) return InputError{"", "a name with a NUL is no file; expected one without"};
  const auto kind_error = [&](const struct stat& status) -> std::optional<InputError> {
    if (S_ISDIR(status.st_mode)) return InputError{name, "is a directory; expected a file"};
    if (!S_ISREG(status.st_mode)) return InputError{name, "is a device, a pipe or a socket; expected a regular file"};
    return std::nullopt;
  };
  struct stat status {};
  // Before it is opened, since opening a device may do something; and of what was opened, since the name may mean something else by then.
  if (::stat(name.c_str(), &status) != 0) return not_readable(name);
  if (auto error = kind_error(status)) return *error;
  OpenFile file(open_again(name.c_str(), O_RDONLY | O_NONBLOCK));
  if (file.descriptor() < 0) return errno == EACCES ? InputError{name, "cannot be opened; expected a file that may be read"} : not_readable(name);
  if (::fstat(file.descriptor(), &status) != 0) return not_readable(name);
  if (auto error = kind_error(status)) return *error;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > bytes_max) return too_large(name, bytes_max);
  return InputFile(std::move(file), size, name);
}

Result<std::size_t> InputFile::read(std::span<char> into) {
  if (file_.descriptor() < 0) {
    const std::size_t n = text_.copy(into.data(), into.size());
    text_.remove_prefix(n);
    return n;
  }
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t n = ::read(file_.descriptor(), into.data() + done, into.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return not_readable(path_);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t bytes_max) {
  auto file = InputFile::open(path, bytes_max);
  if (!file) return file.error();
  InputFile in = std::move(file).value();
  // No more than was announced: some files of the system have no size and no end.
  std::string text(static_cast<std::size_t>(in.size()), '\0');
  const auto read = in.read(text);
  if (!read) return read.error();
  text.resize(*read);
  return text;
}

Result<OutputFile> OutputFile::create(const std::filesystem::path& path) {
  const std::string& name = path.native();
  if (name.find('\0') != std::string::npos) return InputError{"", "a name with a NUL is no file; expected one without"};
  // Without O_NONBLOCK a pipe would be waited for until somebody reads it.
  OpenFile file(open_again(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK));
  if (file.descriptor() < 0) return InputError{name, "cannot be written: " + (errno == ENXIO ? std::string("nobody reads this pipe") : reason())};
  const int flags = ::fcntl(file.descriptor(), F_GETFL);
  if (flags < 0 || ::fcntl(file.descriptor(), F_SETFL, flags & ~O_NONBLOCK) != 0) return InputError{name, "cannot be written: " + reason()};
  return OutputFile(std::move(file), name);
}

void OutputFile::write(std::string_view text) {
  constexpr std::size_t buffered_max = 1 << 16;
  if (error_) return;
  buffer_.append(text);
  if (buffer_.size() >= buffered_max) flush();
}

void OutputFile::flush() {
  std::string_view left = buffer_;
  while (file_ && !error_ && !left.empty()) {
    const ssize_t n = ::write(file_->descriptor(), left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) error_ = InputError{path_, "cannot be written to its end: " + reason()};
    else left.remove_prefix(static_cast<std::size_t>(n));
  }
  buffer_.clear();
}

std::optional<InputError> OutputFile::close() {
  flush();
  if (file_ && ::close(file_->release()) != 0 && !error_) error_ = InputError{path_, "cannot be written to its end: " + reason()};
  file_.reset();
  return error_;
}

std::optional<InputError> write_file(const std::filesystem::path& path, std::string_view text) {
  auto created = OutputFile::create(path);
  if (!created) return created.error();
  OutputFile file = std::move(created).value();
  file.write(text);
  return file.close();
}

}  // namespace gradledger
