#include "sim/scenario/positions.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "sim/base/error_list.h"
#include "sim/base/files.h"
#include "sim/base/limits.h"
#include "sim/scenario/json_reader.h"

namespace gradledger {
namespace {

// The parser's way through the text, seen from outside: it says what it read, and this how far it had read by then.
struct CountedCharacter {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at = nullptr;
  std::size_t* read = nullptr;

  reference operator*() const { return *at; }
  CountedCharacter& operator++() {
    ++at;
    ++*read;
    return *this;
  }
  CountedCharacter operator++(int) {
    const CountedCharacter before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountedCharacter& other) const { return at == other.at; }
};

// Goes on from where it was last asked: places come in the order of the text.
class LineCounter {
 public:
  explicit LineCounter(std::string_view text) : text_(text) {}

  Position at(std::size_t byte) {
    for (; next_ < std::min(byte, text_.size()); ++next_) {
      const auto c = static_cast<unsigned char>(text_[next_]);
      if (c == '\n') here_ = {here_.line + 1, 1};
      else if ((c & 0xC0u) != 0x80u) ++here_.column;  // not within a character of several bytes
    }
    return here_;
  }

 private:
  std::string_view text_;
  std::size_t next_ = 0;
  Position here_{1, 1};
};

// Follows a parse and notes where the values begin that somebody asks for.
class Locator final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Locator(std::string_view text, const std::size_t& read, std::map<std::string, Position>& wanted) : text_(text), lines_(text), read_(read), wanted_(wanted) {}

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
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

  bool key(string_t& key) override {
    go_to(pointer_token(key));
    before_ = read_;
    return true;
  }

 private:
  struct Frame {
    bool array;
    std::size_t next;    // entry of an array
    std::size_t length;  // of the pointer of the value itself
  };

  void go_to(const std::string& token) {
    pointer_.resize(frames_.back().length);
    pointer_ += "/" + token;
  }

  // Called when its first token has been read: it begins with the first character since the token before that stands for something.
  bool value() {
    if (!frames_.empty() && frames_.back().array) go_to(std::to_string(frames_.back().next++));
    if (const auto asked = wanted_.find(pointer_); asked != wanted_.end()) asked->second = lines_.at(text_.find_first_not_of(" \t\r\n,:", before_));
    before_ = read_;
    return true;
  }

  bool open(bool array) {
    value();
    frames_.push_back({array, 0, pointer_.size()});
    return frames_.size() <= limits::json_depth_max;
  }

  bool close() {
    pointer_.resize(frames_.back().length);
    frames_.pop_back();
    before_ = read_;
    return true;
  }

  std::string_view text_;
  LineCounter lines_;
  const std::size_t& read_;
  std::size_t before_ = 0;  // how far the parser had read when it said the token before
  std::map<std::string, Position>& wanted_;
  std::vector<Frame> frames_;
  std::string pointer_;
};

std::string numbered(const std::string& file, const Position& at) { return at.known() ? file + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) : file; }

// ":3" at the front of a text, which is cut off.
std::size_t take_number(std::string_view& text) {
  std::size_t number = 0;
  if (!text.starts_with(":")) return 0;
  const auto [end, failed] = std::from_chars(text.data() + 1, text.data() + text.size(), number);
  if (failed != std::errc{}) return 0;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

}  // namespace

namespace {

// Of what errors of a document say: JSON pointers, and "line 3, column 5" of a text that is no JSON.
std::vector<Position> where_in(std::string_view text, const std::vector<std::string>& wheres) {
  std::vector<std::string> pointers;
  for (const std::string& where : wheres)
    if (where.starts_with("/")) pointers.push_back(where);
  std::vector<Position> out, found = pointers.empty() ? out : positions_of(text, pointers);
  std::size_t next = 0;
  for (const std::string& where : wheres) {
    Position& at = out.emplace_back();
    if (where.starts_with("/")) at = found[next++];
    else if (std::sscanf(where.c_str(), "line %zu, column %zu", &at.line, &at.column) != 2) at = {};
  }
  return out;
}

// An option is of no file.
std::string place_text(const std::filesystem::path& file, const std::string& where, const Position& at) {
  if (where.starts_with("--")) return where;
  if (where.starts_with("/")) return numbered(file.string(), at) + ": " + where;
  return at.known() ? numbered(file.string(), at) : file.string() + (where.empty() ? "" : ": " + where);
}

std::vector<std::string> wheres_of(const std::vector<InputError>& errors) {
  std::vector<std::string> out;
  for (const InputError& one : errors) out.push_back(one.where);
  return out;
}

}  // namespace

Position position_at(std::string_view text, std::size_t byte) { return LineCounter(text).at(byte); }

std::vector<Position> positions_of(std::string_view text, const std::vector<std::string>& pointers) {
  std::map<std::string, Position> wanted;
  for (const std::string& pointer : pointers)
    for (std::size_t end = pointer.size(); end != std::string::npos; end = end == 0 ? std::string::npos : pointer.rfind('/', end - 1)) wanted[pointer.substr(0, end)];
  std::size_t read = 0;
  Locator locator(text, read, wanted);
  nlohmann::json::sax_parse(CountedCharacter{text.data(), &read}, CountedCharacter{text.data() + text.size(), &read}, &locator);
  std::vector<Position> out;
  for (std::string pointer : pointers) {
    while (!wanted[pointer].known() && !pointer.empty()) pointer.resize(pointer.rfind('/') == std::string::npos ? 0 : pointer.rfind('/'));
    out.push_back(wanted[pointer]);
  }
  return out;
}

std::string place_in(const std::filesystem::path& file, std::string_view text, const std::string& where) { return place_text(file, where, where_in(text, {where}).front()); }

std::string place_in(const std::filesystem::path& file, const std::string& pointer) {
  const auto text = read_file(file);
  return place_in(file, text ? std::string_view(*text) : std::string_view(), pointer);
}

std::vector<InputError> placed(std::vector<InputError> errors, const std::filesystem::path& file, std::string_view text) {
  const std::size_t left_out = errors.size() > limits::errors_told_max ? errors.size() - limits::errors_told_max : 0;
  const bool counted = errors.size() < limits::errors_counted_max;
  errors.resize(errors.size() - left_out);
  const std::vector<Position> at = where_in(text, wheres_of(errors));
  for (std::size_t i = 0; i < errors.size(); ++i) errors[i].where = place_text(file, errors[i].where, at[i]);
  if (left_out > 0) errors.push_back({file.string(), (counted ? "" : "at least ") + std::to_string(left_out) + " more error" + (left_out == 1 ? " is" : "s are") + " not told"});
  return errors;
}

std::vector<InputError> in_order(std::vector<InputError> errors, std::string_view text) {
  if (errors.size() < 2) return errors;
  const std::vector<Position> at = where_in(text, wheres_of(errors));
  std::vector<std::pair<Position, std::size_t>> order;
  for (std::size_t i = 0; i < errors.size(); ++i) order.emplace_back(at[i], i);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return std::tie(a.first.line, a.first.column) < std::tie(b.first.line, b.first.column); });
  std::vector<InputError> out;
  for (const auto& [position, i] : order) out.push_back(std::move(errors[i]));
  return out;
}

Place place_from(const std::string& text, const std::filesystem::path& file) {
  std::string_view rest = text;
  if (!rest.starts_with(file.string())) return {};
  rest.remove_prefix(file.string().size());
  Place out;
  out.at.line = take_number(rest);
  out.at.column = take_number(rest);
  if (rest.starts_with(": /")) out.pointer = rest.substr(2, rest.find(": ", 2) - 2);
  return out;
}

}  // namespace gradledger
