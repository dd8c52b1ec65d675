#include "sim/scenario/json_reader.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "sim/base/error_list.h"
#include "sim/base/limits.h"
#include "sim/scenario/positions.h"
#include "sim/scenario/syntax_cause.h"

namespace gradledger {
namespace {

std::string place_of(std::string_view text, std::size_t byte);

// Follows a first parse of the document and stops it at the first thing behind which nothing can be read: one that is wrong early is not read
// to its end, and nothing is built of it. (The library's own callbacks look through a whole array at each entry.)
class Checker final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Checker(std::string_view text, std::uint64_t bytes_max) : text_(text), left_(bytes_max) {}

  // What ended the parse; empty where nothing did.
  const std::optional<InputError>& error() const { return error_; }
  // Keys that appear twice, which end nothing.
  const ErrorList& repeated() const { return repeated_; }

  bool null() override { return value() && take(0); }
  bool boolean(bool) override { return value() && take(0); }
  bool number_integer(number_integer_t) override { return value() && take(0); }
  bool number_unsigned(number_unsigned_t) override { return value() && take(0); }
  bool number_float(number_float_t, const string_t&) override { return value() && take(0); }
  bool string(string_t& text) override { return value() && take(string_bytes + text.size()); }
  bool binary(binary_t&) override { return value() && take(0); }
  bool start_object(std::size_t) override { return open(false); }
  bool start_array(std::size_t) override { return open(true); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    Frame& frame = frames_.back();
    frame.key = key;
    if (!take(node_bytes + key.size())) return false;
    if (!frame.keys.insert(key).second && !repeated_.full()) repeated_.add({pointer(), "appears twice; expected each key once"});
    return true;
  }

  bool parse_error(std::size_t byte, const std::string&, const nlohmann::json::exception& thrown) override {
    value();  // the pointer of what the parser stumbled over
    if (dynamic_cast<const nlohmann::json::out_of_range*>(&thrown)) return stop({pointer(), "holds a number that no double can represent; expected a finite one"});
    return stop({place_of(text_, byte), "is not JSON from here on; expected a JSON document in UTF-8" + syntax_cause(text_, byte)});
  }

 private:
  struct Frame {
    bool array;
    std::size_t next;
    std::string key;
    std::set<std::string> keys;
  };

  // Bytes of memory, as they are allocated: a value in an array that doubles while it grows, and what it points to.
  static constexpr std::uint64_t value_bytes = 3 * sizeof(nlohmann::json);
  static constexpr std::uint64_t string_bytes = sizeof(std::string) + 32;
  static constexpr std::uint64_t structure_bytes = sizeof(nlohmann::json::object_t) + 16;
  static constexpr std::uint64_t node_bytes = 2 * (32 + sizeof(std::string) + 16);  // of the document, and of this check for keys that appear twice

  bool take(std::uint64_t bytes) {
    bytes += value_bytes;
    if (bytes > left_) return stop({pointer(), "makes the document larger in memory than is read; expected fewer values"});
    left_ -= bytes;
    return true;
  }

  bool value() {
    if (!frames_.empty() && frames_.back().array) frames_.back().key = std::to_string(frames_.back().next++);
    return true;
  }

  bool open(bool array) {
    value();
    if (frames_.size() >= limits::json_depth_max) return stop({pointer(), "is nested too deeply; expected at most " + std::to_string(limits::json_depth_max) + " levels"});
    if (!take(structure_bytes)) return false;
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
  std::uint64_t left_;  // of the document's memory
  std::vector<Frame> frames_;
  std::optional<InputError> error_;
  ErrorList repeated_;
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

Result<nlohmann::json> read_json(std::string_view text, ErrorList& repeated, std::uint64_t document_bytes_max) {
  if (text.size() > limits::file_bytes_max) return InputError{"", "is larger than is read; expected at most " + std::to_string(limits::file_bytes_max) + " bytes"};
  Checker checker(text, document_bytes_max);
  const bool complete = nlohmann::json::sax_parse(text.begin(), text.end(), &checker);
  repeated = checker.repeated();
  if (checker.error()) return *checker.error();
  ensures(complete, "a document that is not read to its end has an error");
  // The parser takes a NUL for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) return InputError{place_of(text, nul + 1), "is a NUL; expected a JSON document in UTF-8"};
  return nlohmann::json::parse(text.begin(), text.end());
}

Result<nlohmann::json> read_json(std::string_view text, std::uint64_t document_bytes_max) {
  ErrorList repeated;
  auto document = read_json(text, repeated, document_bytes_max);
  if (!repeated.empty()) return repeated.front();
  return document;
}

}  // namespace gradledger
