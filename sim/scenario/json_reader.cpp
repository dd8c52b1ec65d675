#include "sim/scenario/json_reader.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "sim/base/limits.h"
#include "sim/scenario/positions.h"

namespace gradledger {
namespace {

std::string place_of(std::string_view text, std::size_t byte);

// Follows a first parse of the document and stops it at the first thing that is wrong: one that is wrong early is not read to its end,
// and nothing is built of it. (The library's own callbacks look through a whole array at each entry.)
class Checker final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Checker(std::string_view text) : text_(text) {}

  // What is wrong; empty before that.
  const std::optional<InputError>& error() const { return error_; }

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(std::size_t) override { return open(false); }
  bool start_array(std::size_t) override { return open(true); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    Frame& frame = frames_.back();
    frame.key = key;
    return frame.keys.insert(key).second || stop({pointer(), "appears twice; expected each key once"});
  }

  bool parse_error(std::size_t byte, const std::string&, const nlohmann::json::exception& thrown) override {
    value();  // the pointer of what the parser stumbled over
    if (dynamic_cast<const nlohmann::json::out_of_range*>(&thrown)) return stop({pointer(), "holds a number that no double can represent; expected a finite one"});
    return stop({place_of(text_, byte), "is not JSON from here on; expected a JSON document in UTF-8"});
  }

 private:
  struct Frame {
    bool array;
    std::size_t next;
    std::string key;
    std::set<std::string> keys;
  };

  bool value() {
    if (!frames_.empty() && frames_.back().array) frames_.back().key = std::to_string(frames_.back().next++);
    return true;
  }

  bool open(bool array) {
    value();
    if (frames_.size() >= limits::json_depth_max) return stop({pointer(), "is nested too deeply; expected at most " + std::to_string(limits::json_depth_max) + " levels"});
    frames_.push_back({array, 0, {}, {}});
    return true;
  }

  bool close() {
    frames_.pop_back();
    return true;
  }

  bool stop(InputError error) {
    error_ = std::move(error);
    return false;
  }

  std::string pointer() const {
    std::string out;
    for (const Frame& frame : frames_) out += "/" + pointer_token(frame.key);
    return out;
  }

  std::string_view text_;
  std::vector<Frame> frames_;
  std::optional<InputError> error_;
};

// Of a byte, counted from 1.
std::string place_of(std::string_view text, std::size_t byte) {
  const Position at = position_at(text, byte - std::min<std::size_t>(byte, 1));
  return "line " + std::to_string(at.line) + ", column " + std::to_string(at.column);
}

}  // namespace

std::optional<double> fraction(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  const std::string& text = value.get_ref<const std::string&>();
  const char* const end = text.data() + text.size();
  std::uint32_t numerator = 0, denominator = 0;
  const auto [slash, first] = std::from_chars(text.data(), end, numerator);
  if (first != std::errc{} || slash == end || *slash != '/') return std::nullopt;
  const auto [rest, second] = std::from_chars(slash + 1, end, denominator);
  if (second != std::errc{} || rest != end || denominator == 0) return std::nullopt;
  return static_cast<double>(numerator) / denominator;
}

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
  if (text.size() > limits::file_bytes_max) return InputError{"", "is larger than is read; expected at most " + std::to_string(limits::file_bytes_max) + " bytes"};
  Checker checker(text);
  const bool complete = nlohmann::json::sax_parse(text.begin(), text.end(), &checker);
  if (checker.error()) return *checker.error();
  ensures(complete, "a document that is not read to its end has an error");
  // The parser takes a NUL for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) return InputError{place_of(text, nul + 1), "is a NUL; expected a JSON document in UTF-8"};
  return nlohmann::json::parse(text.begin(), text.end());
}

Result<std::string> read_file(const std::filesystem::path& path) {
  if (path.native().find('\0') != std::string::npos) return InputError{"", "a name with a NUL is no file; expected one without"};
  std::error_code failed;
  const std::filesystem::file_status status = std::filesystem::status(path, failed);
  if (!std::filesystem::exists(status)) return InputError{path.string(), "cannot be read: " + failed.message()};
  if (std::filesystem::is_directory(status)) return InputError{path.string(), "is a directory; expected a file"};
  if (!std::filesystem::is_regular_file(status)) return InputError{path.string(), "is a device, a pipe or a socket; expected a regular file"};
  const std::uintmax_t size = std::filesystem::file_size(path, failed);
  if (failed) return InputError{path.string(), "cannot be read: " + failed.message()};
  if (size > limits::file_bytes_max) return InputError{path.string(), "is larger than is read; expected at most " + std::to_string(limits::file_bytes_max) + " bytes"};
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return InputError{path.string(), "cannot be opened; expected a file that may be read"};
  // No more than was announced: some files of the system have no size and no end.
  std::string text(static_cast<std::size_t>(size), '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) return InputError{path.string(), "cannot be read"};
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

}  // namespace gradledger
