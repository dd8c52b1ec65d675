#include "sim/base/lines.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ios>
#include <vector>

#include <boost/iostreams/filter/gzip.hpp>
#include <boost/iostreams/filtering_stream.hpp>

#include "sim/base/files.h"

namespace gradledger {
namespace {

namespace io = boost::iostreams;

constexpr std::streamsize buffered = 1 << 16;  // bytes

// What a filter chain reads from. Copies of it share the file.
class FileSource : public io::source {
 public:
  FileSource(InputFile& file, std::string_view read_before) : file_(&file), ahead_(read_before) {}

  std::streamsize read(char* into, std::streamsize n) {
    const auto wanted = static_cast<std::size_t>(n), first = std::min(wanted, ahead_.size());
    std::memcpy(into, ahead_.data(), first);
    ahead_.erase(0, first);
    const auto more = file_->read({into + first, wanted - first});
    if (!more) throw std::ios_base::failure(more.error().message);
    return first + *more == 0 ? -1 : static_cast<std::streamsize>(first + *more);
  }

 private:
  InputFile* file_;
  std::string ahead_;
};

class FileSink : public io::sink {
 public:
  explicit FileSink(OutputFile& file) : file_(&file) {}

  std::streamsize write(const char* text, std::streamsize n) {
    file_->write({text, static_cast<std::size_t>(n)});
    return n;
  }

 private:
  OutputFile* file_;
};

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

// ---- reading ----------------------------------------------------------------------------------------------------------------------------

struct LineReader::State {
  State(InputFile opened, std::string name, const LineLimits& most) : file(std::move(opened)), path(std::move(name)), limits(most), chunk(buffered) {}

  InputFile file;
  std::string path;
  LineLimits limits;
  bool packed = false, at_end = false, ended = false;  // ended: nothing is read any more
  io::filtering_streambuf<io::input> unpacked;
  std::vector<char> chunk;
  std::string_view rest;  // of the chunk
  std::uint64_t bytes = 0, number = 0;
  std::string line;

  std::string where() const { return path + ":" + std::to_string(number); }

  // Fills the chunk with what there is before the next error, if any. Errors: gzip that is damaged or cut short, a file that is too long.
  std::optional<InputError> fill() {
    std::size_t n = 0;
    try {
      if (!std::char_traits<char>::eq_int_type(unpacked.sgetc(), std::char_traits<char>::eof()))
        n = static_cast<std::size_t>(unpacked.sgetn(chunk.data(), std::min(unpacked.in_avail(), static_cast<std::streamsize>(chunk.size()))));
    } catch (const std::ios_base::failure& failure) {
      ++number;
      if (packed) return InputError{where(), "is damaged or cut short here; expected a whole gzip file"};
      return InputError{where(), failure.what()};
    }
    at_end = n == 0;
    bytes += n;
    rest = {chunk.data(), n};
    if (bytes > limits.file_bytes) return InputError{path, "unpacks to more than is read; expected at most " + std::to_string(limits.file_bytes) + " bytes"};
    return std::nullopt;
  }

  // Files that are nothing but line ends are not worth a look at each.
  void skip_empty_lines() {
    const std::size_t n = std::min(rest.find_first_not_of('\n'), rest.size());
    number += n;
    rest.remove_prefix(n);
  }

  // The next line, blank or not, without its end; false where there is none.
  Result<bool> read_line() {
    line.clear();
    bool any = false;
    while (true) {
      if (rest.empty()) {
        if (auto error = fill()) return *error;
        if (at_end) {
          number += any;
          return any;
        }
      }
      any = true;
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      if (line.size() + end > limits.line_bytes) {
        ++number;
        return InputError{where(), "is longer than " + std::to_string(limits.line_bytes) + " bytes"};
      }
      line.append(rest.substr(0, end));
      const bool whole = end < rest.size();
      rest.remove_prefix(end + (whole ? 1 : 0));
      if (!whole) continue;
      ++number;
      return true;
    }
  }
};

LineReader::LineReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
LineReader::LineReader(LineReader&&) noexcept = default;
LineReader& LineReader::operator=(LineReader&&) noexcept = default;
LineReader::~LineReader() = default;

Result<LineReader> LineReader::open(const std::filesystem::path& path, const LineLimits& limits) {
  auto file = InputFile::open(path, limits.file_bytes);
  if (!file) return file.error();
  auto state = std::make_unique<State>(std::move(file).value(), path.string(), limits);
  std::array<char, 2> first{};
  const auto read = state->file.read(first);
  if (!read) return read.error();
  const std::string_view ahead(first.data(), *read);
  state->packed = ahead == "\x1f\x8b" || path.native().ends_with(".gz");
  if (state->packed) state->unpacked.push(io::gzip_decompressor(), buffered);
  state->unpacked.push(FileSource(state->file, ahead), buffered);
  return LineReader(std::move(state));
}

Result<bool> LineReader::next() {
  while (!state_->ended) {
    state_->skip_empty_lines();
    auto read = state_->read_line();
    state_->ended = !read || !*read;
    if (!read || (*read && !is_blank(state_->line))) return read;
  }
  return false;
}

const std::string& LineReader::line() const { return state_->line; }
std::string LineReader::where() const { return state_->where(); }

// ---- writing ----------------------------------------------------------------------------------------------------------------------------

struct LineWriter::State {
  explicit State(OutputFile created) : file(std::move(created)) {}

  OutputFile file;
  io::filtering_ostream out;
};

LineWriter::LineWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
LineWriter::LineWriter(LineWriter&&) noexcept = default;
LineWriter& LineWriter::operator=(LineWriter&&) noexcept = default;
LineWriter::~LineWriter() = default;

Result<LineWriter> LineWriter::create(const std::filesystem::path& path) { return create(path, path); }

Result<LineWriter> LineWriter::create(const std::filesystem::path& path, const std::filesystem::path& name) {
  auto file = OutputFile::create(path);
  if (!file) return file.error();
  auto state = std::make_unique<State>(std::move(file).value());
  if (name.native().ends_with(".gz")) state->out.push(io::gzip_compressor(io::gzip_params(io::gzip::best_compression)));
  state->out.push(FileSink(state->file));
  return LineWriter(std::move(state));
}

void LineWriter::write(std::string_view line) { state_->out << line << '\n'; }

std::optional<InputError> LineWriter::close() {
  state_->out.reset();
  return state_->file.close();
}

}  // namespace gradledger
