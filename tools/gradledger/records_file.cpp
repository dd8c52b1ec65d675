#include "tools/gradledger/records_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

namespace gradledger::tool {
namespace {

// A report of an earlier run is replaced, half a one too; a scenario is not.
bool holds_something_else(const std::string& path) {
  auto file = InputFile::open(path, std::uint64_t{1} << 62);
  std::array<char, 18> begin{};
  if (!file) return false;
  const auto read = std::move(file).value().read(begin);
  return read && *read > 0 && std::string_view(begin.data(), *read) != std::string_view("{\"schema_version\":").substr(0, *read);
}

InputError cannot_be_written(const std::string& path) { return {"--records", path + " cannot be written: " + std::generic_category().message(errno)}; }

}  // namespace

Result<RecordsFile> RecordsFile::open(const std::string& path, const std::string& command) {
  RecordsFile out;
  if (path.empty()) return out;
  if (holds_something_else(path)) return InputError{"--records", path + " is there and is no report; expected another file"};
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
  if (descriptor < 0) return cannot_be_written(path);
  out.path_ = path;
  out.file_.emplace(descriptor);
  out.is_of(command);
  return out;
}

void RecordsFile::is_of(const std::string& command) { renderer_ = report::renderer("json", {}, {.command = command}); }

void RecordsFile::write(const std::string& text) {
  for (std::size_t at = 0; at < text.size() && !error_;) {
    const ssize_t written = ::write(file_->descriptor(), text.data() + at, text.size() - at);
    if (written >= 0) at += static_cast<std::size_t>(written);
    else if (errno != EINTR) error_ = cannot_be_written(path_);
  }
}

}  // namespace gradledger::tool
