#include "conformance/files.h"

#include <algorithm>

#include "sim/base/lines.h"
#include "sim/scenario/json_reader.h"

namespace gradledger::conform {
namespace {

// JSON escapes the others.
bool is_text(const std::string& line) {
  return std::all_of(line.begin(), line.end(), [](unsigned char c) { return c >= 0x20 || c == '\t' || c == '\r'; });
}

}  // namespace

std::optional<InputError> for_each_line(const std::string& path, const LineUse& use) {
  auto opened = LineReader::open(path);
  if (!opened) return opened.error();
  LineReader reader = std::move(opened).value();
  std::uint64_t used = 0;
  while (true) {
    const auto read = reader.next();
    if (!read) return read.error();
    if (!*read) break;
    if (auto error = use(reader.line(), reader.where())) return error;
    ++used;
  }
  if (used == 0) return InputError{path, "holds no recording; judging nothing does not pass"};
  return std::nullopt;
}

std::optional<InputError> for_each_document(const std::string& path, const DocumentUse& use, const Complaint& complain) {
  std::uint64_t unreadable = 0;
  return for_each_line(path, [&](const std::string& line, const std::string& where) -> std::optional<InputError> {
    if (!is_text(line)) return InputError{where, "holds bytes that no text has; expected JSON lines, plain or gzip"};
    const auto document = read_json(line, document_bytes_max);
    const std::optional<InputError> error = document ? use(*document) : document.error();
    if (!error) return std::nullopt;
    complain({where, error->text(), error->unavailable});
    if (++unreadable < unreadable_lines_max) return std::nullopt;
    return InputError{path, "is given up after " + std::to_string(unreadable) + " lines that cannot be read"};
  });
}

std::optional<InputError> write_gzip_lines(const std::string& path, const std::vector<std::string>& lines) {
  auto created = LineWriter::create(path);
  if (!created) return created.error();
  LineWriter out = std::move(created).value();
  for (const std::string& line : lines) out.write(line);
  return out.close();
}

}  // namespace gradledger::conform
