// Files by name, read and written so that no name can make the program hang, and none is taken for read or written that is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sim/base/limits.h"
#include "sim/base/result.h"

namespace gradledger {

// An open file, closed when it goes.
class OpenFile {
 public:
  explicit OpenFile(int descriptor) : descriptor_(descriptor) {}
  OpenFile(OpenFile&& other) noexcept : descriptor_(other.release()) {}
  OpenFile& operator=(OpenFile&& other) noexcept;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  int descriptor() const { return descriptor_; }
  int release() noexcept;

 private:
  int descriptor_;
};

// Standard input, which is read whole before anything else happens and is a file by this name from then on. Errors: a terminal, nothing in it, more
// than `bytes_max`, the medium's. Precondition: once, before there are threads.
inline constexpr const char* standard_input_name = "<stdin>";
std::optional<InputError> take_standard_input(std::uint64_t bytes_max);
// Whether it was read, and this is its name.
bool is_standard_input(const std::filesystem::path& path);

// A regular file, open for reading. Pipes, devices and sockets are refused and not waited for.
class InputFile {
 public:
  // Errors: not there, not readable, not a regular file, larger than `bytes_max`.
  static Result<InputFile> open(const std::filesystem::path& path, std::uint64_t bytes_max);

  std::uint64_t size() const { return size_; }  // when it was opened; some files of the system say 0 and have more

  // What was read of `into`: all of it, but at the end of the file. Errors: the medium's.
  Result<std::size_t> read(std::span<char> into);

 private:
  InputFile(OpenFile file, std::uint64_t size, std::string path, std::string_view text = {}) : file_(std::move(file)), size_(size), path_(std::move(path)), text_(text) {}

  OpenFile file_;
  std::uint64_t size_;
  std::string path_;
  std::string_view text_;  // that is left of standard input
};

// The whole of a file. Errors: those of InputFile.
Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t bytes_max = limits::file_bytes_max);

// A file that is written from its beginning. The first error is kept, and nothing is written after it.
class OutputFile {
 public:
  // What was there is gone. Errors: cannot be created; a pipe that nobody reads.
  static Result<OutputFile> create(const std::filesystem::path& path);

  void write(std::string_view text);

  // Whether all of it is written. To be asked at the end: what is left of the buffer goes out here.
  std::optional<InputError> close();

 private:
  OutputFile(OpenFile file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  void flush();

  std::optional<OpenFile> file_;
  std::string path_;
  std::string buffer_;
  std::optional<InputError> error_;
};

// All of a file. Errors: those of OutputFile.
std::optional<InputError> write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace gradledger
