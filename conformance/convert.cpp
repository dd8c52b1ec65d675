#include "conformance/convert.h"

#include "conformance/compact_format.h"
#include "conformance/files.h"
#include "conformance/recording.h"

namespace gradledger::conform {
namespace {

bool same(const Result<Recording>& a, const Result<Recording>& b) {
  if (a.ok() != b.ok()) return false;
  return a ? *a == *b : a.error() == b.error();
}

bool is_wanted(const Result<Recording>& recording, const Selection& selection) {
  if (selection.keep == Keep::all) return true;
  if (recording) return selection.keep == Keep::expressible;
  return selection.keep == Keep::inexpressible && recording.error().message.find(selection.because) != std::string::npos;
}

// The file against what was meant to be in it.
std::optional<InputError> verify(const std::string& path, const std::vector<RecordedRun>& runs) {
  std::size_t next = 0;
  const auto error = for_each_run(path, [&](const RecordedRun& run, const std::string& where) -> std::optional<InputError> {
    if (next >= runs.size() || !(run == runs[next]) || !same(express(run), express(runs[next])))
      return InputError{where, "does not hold the run that was written to it; this is a bug in the conversion"};
    ++next;
    return std::nullopt;
  });
  if (error) return error;
  if (next != runs.size()) return InputError{path, "holds " + std::to_string(next) + " of " + std::to_string(runs.size()) + " runs"};
  return std::nullopt;
}

}  // namespace

Result<Converted> convert(const std::vector<std::string>& from, const std::string& to, const Selection& selection) {
  Converted out;
  std::vector<RecordedRun> kept;
  std::vector<std::string> lines;
  for (const std::string& path : from) {
    const auto error = for_each_run(path, [&](RecordedRun run, const std::string& where) -> std::optional<InputError> {
      const auto recording = express(run);
      if (!recording && recording.error().where != inexpressible) return InputError{where, recording.error().text()};
      ++out.read;
      if (!recording) ++out.inexpressible[recording.error().message];
      if (!is_wanted(recording, selection)) return std::nullopt;
      lines.push_back(to_compact(run).dump());
      kept.push_back(std::move(run));
      return std::nullopt;
    });
    if (error) return *error;
  }
  if (kept.empty()) return InputError{to, "would be empty: none of " + std::to_string(out.read) + " runs is to be kept"};
  if (const auto error = write_gzip_lines(to, lines)) return *error;
  if (const auto error = verify(to, kept)) return *error;
  out.written = kept.size();
  return out;
}

}  // namespace gradledger::conform
