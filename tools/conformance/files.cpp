#include "tools/conformance/files.h"

#include <filesystem>
#include <fstream>

#include <boost/iostreams/filter/gzip.hpp>
#include <boost/iostreams/filtering_stream.hpp>

#include "sim/base/limits.h"

namespace gradledger::conform {
namespace {

enum class Read { line, end, too_long };

// std::getline would take whatever memory a file without line ends asks for, and swallow what the filter throws.
Read read_line(std::streambuf& in, std::string& line) {
  using Traits = std::char_traits<char>;
  line.clear();
  for (auto c = in.sbumpc(); !Traits::eq_int_type(c, Traits::eof()); c = in.sbumpc()) {
    if (c == '\n') return Read::line;
    if (line.size() == limits::file_bytes_max) return Read::too_long;
    line.push_back(Traits::to_char_type(c));
  }
  return line.empty() ? Read::end : Read::line;
}

// `number` counts the lines that were read.
std::optional<InputError> use_lines(std::streambuf& in, const std::string& path, const LineUse& use, std::uint64_t& number) {
  std::string line;
  std::uint64_t used = 0;
  for (Read read = read_line(in, line); read != Read::end; read = read_line(in, line)) {
    const std::string where = path + ":" + std::to_string(++number);
    if (read == Read::too_long) return InputError{where, "is longer than " + std::to_string(limits::file_bytes_max) + " bytes"};
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (auto error = use(line, where)) return error;
    ++used;
  }
  if (used == 0) return InputError{path, "holds no recording; judging nothing does not pass"};
  return std::nullopt;
}

}  // namespace

std::optional<InputError> for_each_line(const std::string& path, const LineUse& use) {
  if (std::filesystem::is_directory(path)) return InputError{path, "is a directory; expected a file of JSON lines"};
  std::ifstream file(path, std::ios::binary);
  if (!file) return InputError{path, "cannot be opened"};
  std::uint64_t number = 0;
  if (!path.ends_with(".gz")) return use_lines(*file.rdbuf(), path, use, number);
  boost::iostreams::filtering_streambuf<boost::iostreams::input> in;
  in.push(boost::iostreams::gzip_decompressor());
  in.push(file);
  try {
    return use_lines(in, path, use, number);
  } catch (const std::ios_base::failure&) {  // what the filter throws
    return InputError{path + ":" + std::to_string(number + 1), "is damaged or cut short here; expected a whole gzip file"};
  }
}

std::optional<InputError> write_gzip_lines(const std::string& path, const std::vector<std::string>& lines) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) return InputError{path, "cannot be written"};
  {
    boost::iostreams::filtering_ostream out;
    out.push(boost::iostreams::gzip_compressor(boost::iostreams::gzip_params(boost::iostreams::gzip::best_compression)));
    out.push(file);
    for (const std::string& line : lines) out << line << '\n';
  }
  file.flush();
  if (!file) return InputError{path, "cannot be written to its end"};
  return std::nullopt;
}

}  // namespace gradledger::conform
