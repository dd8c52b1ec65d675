// Files of text in lines, plain or gzip. What a file asks for is bounded: a small one may unpack to anything.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "sim/base/limits.h"
#include "sim/base/result.h"

namespace gradledger {

namespace limits {
inline constexpr std::uint64_t unpacked_bytes_max = 1ull << 30;  // of a file of lines, gzip or not
}

// Of what is read at most; a limit of 0 lets nothing pass.
struct LineLimits {
  std::uint64_t line_bytes = limits::file_bytes_max;
  std::uint64_t file_bytes = limits::unpacked_bytes_max;  // on the disk, and unpacked
};

class LineReader {
 public:
  // gzip is told by its first bytes, or by a name that ends in .gz. Errors: of InputFile.
  static Result<LineReader> open(const std::filesystem::path& path, const LineLimits& limits = {});

  LineReader(LineReader&&) noexcept;
  LineReader& operator=(LineReader&&) noexcept;
  ~LineReader();

  // Goes to the next line that is not blank; false: there is none. Errors: a limit, or gzip that is not whole, with their place; reading ends there.
  Result<bool> next();

  const std::string& line() const;
  std::string where() const;  // "FILE:3", of the line, or of what is wrong

 private:
  struct State;
  explicit LineReader(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

class LineWriter {
 public:
  // gzip where the name ends in .gz, without time and name: the bytes follow from the lines alone. Errors: of OutputFile.
  static Result<LineWriter> create(const std::filesystem::path& path);
  // Of a file that will have another name later.
  static Result<LineWriter> create(const std::filesystem::path& path, const std::filesystem::path& name);

  LineWriter(LineWriter&&) noexcept;
  LineWriter& operator=(LineWriter&&) noexcept;
  ~LineWriter();

  void write(std::string_view line);

  // Whether all of it is written; asked once, at the end.
  std::optional<InputError> close();

 private:
  struct State;
  explicit LineWriter(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace gradledger
