#include "sim/scenario/json_reader.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <vector>

#include "sim/base/limits.h"

namespace gradledger {
namespace {

// Follows the parser through the document and stops it at the first thing that is wrong.
class Watcher {
 public:
  using Event = nlohmann::json::parse_event_t;

  // Thrown through the parser: a document that is wrong early is not read to its end.
  struct Stop {
    InputError error;
  };

  bool operator()(int depth, Event event, const nlohmann::json& parsed) {
    switch (event) {
      case Event::object_start:
      case Event::array_start:
        begin_value();
        if (depth >= static_cast<int>(limits::json_depth_max))
          throw Stop{{pointer(), "is nested too deeply; expected at most " + std::to_string(limits::json_depth_max) + " levels"}};
        frames_.push_back({event == Event::array_start, 0, {}, {}});
        break;
      case Event::object_end:
      case Event::array_end: frames_.pop_back(); break;
      case Event::key: {
        Frame& frame = frames_.back();
        frame.key = parsed.get<std::string>();
        if (!frame.keys.insert(frame.key).second) throw Stop{{pointer(), "appears twice; expected each key once"}};
        break;
      }
      case Event::value: begin_value(); break;
    }
    return true;
  }

  // Of the value that the parser stumbled over.
  std::string next_pointer() {
    begin_value();
    return pointer();
  }

 private:
  struct Frame {
    bool array;
    std::size_t next;
    std::string key;
    std::set<std::string> keys;
  };

  void begin_value() {
    if (!frames_.empty() && frames_.back().array) frames_.back().key = std::to_string(frames_.back().next++);
  }

  std::string pointer() const {
    std::string out;
    for (const Frame& frame : frames_) out += "/" + pointer_token(frame.key);
    return out;
  }

  std::vector<Frame> frames_;
};

std::string place_of(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1);
  return "line " + std::to_string(line) + ", column " + std::to_string(std::max<std::size_t>(column, 1));
}

}  // namespace

std::string pointer_token(std::string_view key) {
  std::string out;
  for (char c : key) {
    if (c == '~') out += "~0";
    else if (c == '/') out += "~1";
    else out += c;
  }
  return out;
}

Result<nlohmann::json> read_json(std::string_view text) {
  if (text.size() > limits::file_bytes_max)
    return InputError{"", "is larger than " + std::to_string(limits::file_bytes_max) + " bytes"};
  Watcher watcher;
  try {
    nlohmann::json document = nlohmann::json::parse(
        text.begin(), text.end(), [&](int depth, Watcher::Event event, nlohmann::json& parsed) { return watcher(depth, event, parsed); });
    return document;
  } catch (const Watcher::Stop& stop) {
    return stop.error;
  } catch (const nlohmann::json::parse_error& error) {
    return InputError{place_of(text, error.byte), "is not JSON from here on; expected a JSON document"};
  } catch (const nlohmann::json::out_of_range&) {
    return InputError{watcher.next_pointer(), "holds a number that no double can represent; expected a finite one"};
  }
}

Result<std::string> read_file(const std::filesystem::path& path) {
  std::error_code failed;
  const std::filesystem::file_status status = std::filesystem::status(path, failed);
  if (!std::filesystem::exists(status)) return InputError{path.string(), "cannot be read: " + failed.message()};
  if (std::filesystem::is_directory(status)) return InputError{path.string(), "is a directory; expected a file"};
  if (!std::filesystem::is_regular_file(status)) return InputError{path.string(), "is a device, a pipe or a socket; expected a regular file"};
  const std::uintmax_t size = std::filesystem::file_size(path, failed);
  if (failed) return InputError{path.string(), "cannot be read: " + failed.message()};
  if (size > limits::file_bytes_max)
    return InputError{path.string(), "is larger than " + std::to_string(limits::file_bytes_max) + " bytes"};
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return InputError{path.string(), "cannot be opened"};
  // No more than was announced: some files of the system have no size and no end.
  std::string text(static_cast<std::size_t>(size), '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) return InputError{path.string(), "cannot be read"};
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

}  // namespace gradledger
