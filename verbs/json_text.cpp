#include "verbs/json_text.h"

#include <nlohmann/json.hpp>

namespace gradledger::verbs {
namespace {

constexpr std::string_view blanks = " \t\r\n";

std::size_t skip_blanks(std::string_view text, std::size_t at) { return std::min(text.find_first_not_of(blanks, at), text.size()); }

std::size_t end_of_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at)
    if (text[at] == '\\') ++at;
  return std::min(at + 1, text.size());
}

std::size_t end_of_value(std::string_view text, std::size_t at) {
  if (text[at] == '"') return end_of_string(text, at);
  if (text[at] != '{' && text[at] != '[') return std::min(text.find_first_of(" \t\r\n,]}", at), text.size());
  std::size_t depth = 0;
  while (at < text.size()) {
    if (text[at] == '"') {
      at = end_of_string(text, at);
      continue;
    }
    if (text[at] == '{' || text[at] == '[') ++depth;
    if ((text[at] == '}' || text[at] == ']') && --depth == 0) return at + 1;
    ++at;
  }
  return at;
}

struct Member {
  TextRange key, value;  // of an array: no key
};

std::vector<Member> members_of(std::string_view text, TextRange whole) {
  std::vector<Member> out;
  const bool object = text[whole.begin] == '{';
  std::size_t at = skip_blanks(text, whole.begin + 1);
  while (at + 1 < whole.end) {
    Member member;
    if (object) {
      member.key = {at, end_of_string(text, at)};
      at = skip_blanks(text, skip_blanks(text, member.key.end) + 1);  // the colon
    }
    member.value = {at, end_of_value(text, at)};
    at = skip_blanks(text, member.value.end);
    out.push_back(member);
    if (text[at] != ',') break;
    at = skip_blanks(text, at + 1);
  }
  return out;
}

std::string replaced(std::string_view text, TextRange range, const std::string& by) { return std::string(text.substr(0, range.begin)) + by + std::string(text.substr(range.end)); }

}  // namespace

TextRange root_of(std::string_view text) {
  const std::size_t begin = skip_blanks(text, 0);
  return {begin, end_of_value(text, begin)};
}

std::optional<TextRange> member_of(std::string_view text, TextRange object, std::string_view key) {
  if (text[object.begin] != '{') return std::nullopt;
  for (const Member& member : members_of(text, object))
    if (nlohmann::json::parse(text.substr(member.key.begin, member.key.end - member.key.begin)) == key) return member.value;
  return std::nullopt;
}

std::vector<TextRange> elements_of(std::string_view text, TextRange array) {
  std::vector<TextRange> out;
  if (text[array.begin] != '[') return out;
  for (const Member& member : members_of(text, array)) out.push_back(member.value);
  return out;
}

std::string with_member(std::string_view text, TextRange object, std::string_view key, std::string_view value) {
  const std::string member = nlohmann::json(key).dump() + ": " + std::string(value);
  const std::vector<Member> members = members_of(text, object);
  if (members.empty()) return replaced(text, object, "{" + member + "}");
  const std::size_t last = members.size() - 1;
  // What stands before the last member: after the one before it, or after the brace.
  const std::size_t from = last > 0 ? text.find(',', members[last - 1].value.end) + 1 : object.begin + 1;
  const std::string before(text.substr(from, members[last].key.begin - from));
  const TextRange end{members[last].value.end, members[last].value.end};
  return replaced(text, end, "," + (before.empty() ? " " : before) + member);
}

std::string with_elements(std::string_view text, TextRange array, const std::vector<std::string>& elements) {
  const std::vector<TextRange> old = elements_of(text, array);
  const std::string before = old.empty() ? "" : std::string(text.substr(array.begin + 1, old.front().begin - array.begin - 1));
  const std::string after = old.empty() ? "" : std::string(text.substr(old.back().end, array.end - 1 - old.back().end));
  const bool lines = before.find('\n') != std::string::npos;
  std::string out = "[";
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (i > 0) out += ",";
    out += lines ? before : i > 0 ? " " : before;
    out += elements[i];
  }
  return replaced(text, array, out + (elements.empty() ? "" : after) + "]");
}

}  // namespace gradledger::verbs
