#include "audit/json_file.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "sim/base/files.h"
#include "sim/scenario/json_reader.h"

namespace gradledger::audit {
namespace {

// Behind a string that begins at `at`, or the end of the text.
std::size_t behind_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at)
    if (text[at] == '\\') ++at;
  return std::min(at + 1, text.size());
}

// Comments as blanks, so that lines and columns stay. Errors: one that never ends.
Result<std::string> without_comments(std::string_view text, const std::string& file) {
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
    if (here == "/*" && closing == text.npos) {
      const Position place = position_at(text, at);
      return InputError{fmt::format("{}:{}:{}", file, place.line, place.column), "begins a comment that never ends; expected */"};
    }
    const std::size_t end = closing == text.npos ? text.size() : here == "//" ? closing : closing + 2;
    for (; at < end; ++at)
      if (out[at] != '\n') out[at] = ' ';
  }
  return out;
}

void add_pointers(const nlohmann::json& value, const std::string& pointer, std::vector<std::string>& out) {
  out.push_back(pointer);
  if (!value.is_structured()) return;
  std::size_t index = 0;
  for (const auto& item : value.items()) add_pointers(item.value(), pointer + "/" + (value.is_array() ? std::to_string(index++) : pointer_token(item.key())), out);
}

}  // namespace

std::string Document::where(const std::string& pointer) const {
  const auto found = places.find(pointer);
  const std::string place = found == places.end() ? file : fmt::format("{}:{}:{}", file, found->second.line, found->second.column);
  return pointer.empty() ? place : place + ": " + pointer;
}

Result<Document> document_of(std::string_view text, const std::string& file) {
  const auto plain = without_comments(text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text, file);
  if (!plain) return plain.error();
  auto json = read_json(*plain);
  if (!json) return InputError{place_in(file, *plain, json.error().where), json.error().message};
  Document out{file, std::move(json).value(), {}};
  std::vector<std::string> pointers;
  add_pointers(out.json, "", pointers);
  const std::vector<Position> places = positions_of(*plain, pointers);
  for (std::size_t i = 0; i < pointers.size(); ++i) out.places[pointers[i]] = places[i];
  return out;
}

Result<Document> read_document(const std::filesystem::path& path) {
  const auto text = read_file(path, configuration_bytes_max);
  if (!text) return text.error();
  return document_of(*text, path.string());
}

}  // namespace gradledger::audit
