#include "audit/json_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include <fmt/format.h>

#include "sim/base/files.h"
#include "sim/scenario/json_reader.h"

namespace gradledger::audit {
namespace {

std::pair<std::size_t, std::size_t> place_of(std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, at);
  const std::size_t newline = before.rfind('\n');
  return {1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')), at - (newline == before.npos ? 0 : newline + 1) + 1};
}

// Behind a string that begins at `at`, or the end of the text.
std::size_t behind_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at)
    if (text[at] == '\\') ++at;
  return std::min(at + 1, text.size());
}

// Comments as blanks, so that lines and columns stay. One that never ends is left as it is.
std::string without_comments(std::string_view text) {
  std::string out(text);
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      at = behind_string(text, at);
      continue;
    }
    const std::string_view here = text.substr(at, 2);
    if (here != "//" && here != "/*") {
      ++at;
      continue;
    }
    const std::size_t closing = here == "//" ? text.find('\n', at) : text.find("*/", at + 2);
    if (here == "/*" && closing == text.npos) return out;
    const std::size_t end = closing == text.npos ? text.size() : here == "//" ? closing : closing + 2;
    for (; at < end; ++at)
      if (out[at] != '\n') out[at] = ' ';
  }
  return out;
}

// What is wrong, where it is one of the usual things.
std::optional<std::pair<std::size_t, std::string>> usual_mistake(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> words{
      {{"True", "true"}, {"False", "false"}, {"None", "null"}, {"NaN", "a number"}, {"nan", "a number"}, {"Infinity", "a finite number"}, {"inf", "a finite number"}}};
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') {
      at = behind_string(text, at) - 1;
      continue;
    }
    if (text[at] == '\'') return std::pair{at, std::string("is in single quotes, which JSON has not; expected \"double quotes\"")};
    if (text.substr(at, 2) == "/*") return std::pair{at, std::string("begins a comment that never ends; expected */")};
    if (text[at] == ',') {
      const std::size_t next = text.find_first_not_of(" \t\r\n", at + 1);
      if (next == text.npos || text[next] == '}' || text[next] == ']')
        return std::pair{at, std::string("is a trailing comma, which JSON has not; expected none behind the last entry")};
    }
    if (std::isalpha(static_cast<unsigned char>(text[at])) == 0) continue;
    std::size_t end = at;
    while (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end])) != 0) ++end;
    const std::string_view word = text.substr(at, end - at);
    for (const auto& [wrong, right] : words)
      if (word == wrong) return std::pair{at, fmt::format("is {}, which JSON has not; expected {}", wrong, right)};
    at = end - 1;
  }
  return std::nullopt;
}

// Places of values in a text that is JSON.
class Places {
 public:
  explicit Places(std::string_view text) : text_(text) {
    blanks();
    value("");
  }
  std::map<std::string, std::pair<std::size_t, std::size_t>> take() { return std::move(out_); }

 private:
  void blanks() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

  void value(const std::string& pointer) {
    while (line_end_ < at_) {
      if (text_[line_end_] == '\n') {
        ++line_;
        line_begin_ = line_end_ + 1;
      }
      ++line_end_;
    }
    out_[pointer] = {line_, at_ - line_begin_ + 1};
    if (text_[at_] == '{' || text_[at_] == '[') return container(pointer, text_[at_] == '{');
    at_ = text_[at_] == '"' ? behind_string(text_, at_) : std::min(text_.find_first_of(" \t\r\n,]}", at_), text_.size());
    blanks();
  }

  void container(const std::string& pointer, bool object) {
    ++at_;
    blanks();
    for (std::size_t index = 0; text_[at_] != '}' && text_[at_] != ']'; ++index) {
      std::string key = std::to_string(index);
      if (object) {
        const std::size_t begin = at_;
        at_ = behind_string(text_, at_);
        key = pointer_token(nlohmann::json::parse(text_.substr(begin, at_ - begin)).get<std::string>());
        at_ = text_.find(':', at_) + 1;
        blanks();
      }
      value(pointer + "/" + key);
      if (text_[at_] == ',') ++at_;
      blanks();
    }
    ++at_;
    blanks();
  }

  std::string_view text_;
  std::size_t at_ = 0, line_ = 1, line_begin_ = 0, line_end_ = 0;
  std::map<std::string, std::pair<std::size_t, std::size_t>> out_;
};

}  // namespace

std::string Document::where(const std::string& pointer) const {
  const auto found = places.find(pointer);
  const std::string place = found == places.end() ? file : fmt::format("{}:{}:{}", file, found->second.first, found->second.second);
  return pointer.empty() ? place : place + ": " + pointer;
}

Result<Document> document_of(std::string_view text, const std::string& file) {
  const std::string plain = without_comments(text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text);
  auto json = read_json(plain);
  if (!json) {
    const auto mistake = usual_mistake(plain);
    // Where a key appears twice, or a number is none: the reader's own words are those.
    if (!mistake || !json.error().message.starts_with("is not JSON")) return InputError{file + (json.error().where.empty() ? "" : ": " + json.error().where), json.error().message};
    const auto [line, column] = place_of(plain, mistake->first);
    return InputError{fmt::format("{}:{}:{}", file, line, column), mistake->second};
  }
  return Document{file, std::move(json).value(), Places(plain).take()};
}

Result<Document> read_document(const std::filesystem::path& path) {
  const auto text = read_file(path);
  if (!text) return text.error();
  return document_of(*text, path.string());
}

}  // namespace gradledger::audit
