#include "audit/arguments_file.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "sim/base/files.h"
#include "sim/base/limits.h"
#include "sim/scenario/json_reader.h"

namespace gradledger::audit {
namespace {

using nlohmann::json;

struct Word {
  std::string text;
  Position place;
};

bool begins_word(char c) { return !std::isspace(static_cast<unsigned char>(c)) && c != '(' && c != ')' && c != ';' && c != '&' && c != '|'; }

// Words of a shell, as far as arguments need them: quotes, comments, and lines that go on behind a backslash. Brackets of an array end a word.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  std::vector<Word> all() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') skip_line();
      else if (begins_word(text_[at_]) && !continues()) out_.push_back(word());
      else separator();
    }
    return std::move(out_);
  }

 private:
  bool continues() const { return text_[at_] == '\\' && at_ + 1 < text_.size() && (text_[at_ + 1] == '\n' || text_[at_ + 1] == '\r'); }

  void next() {
    if (text_[at_] == '\n') {
      ++line_;
      begin_ = at_ + 1;
    }
    ++at_;
  }

  // Behind a bracket or the end of a command stands nothing that belongs to the argument before it: a word without text says so.
  void separator() {
    if (!std::isspace(static_cast<unsigned char>(text_[at_])) && text_[at_] != '\\') out_.push_back({"", {line_, at_ - begin_ + 1}});
    next();
  }

  void skip_line() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }

  // "${NAME[@]}" has brackets of its own.
  Word word() {
    Word out{"", {line_, at_ - begin_ + 1}};
    char quote = 0;
    std::size_t braces = 0;
    for (; at_ < text_.size(); next()) {
      const char c = text_[at_];
      if (quote != 0 && c == quote) quote = 0;
      else if (quote == 0 && (c == '"' || c == '\'')) quote = c;
      else if (quote == 0 && braces == 0 && (!begins_word(c) || continues())) break;
      else out.text += c;
      if (quote == '\'') continue;
      if (c == '{') ++braces;
      if (c == '}' && braces > 0) --braces;
    }
    return out;
  }

  std::string_view text_;
  std::size_t at_ = 0, line_ = 1, begin_ = 0;
  std::vector<Word> out_;
};

bool is_name(std::string_view text) {
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text.front())) &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

bool is_argument(std::string_view word) { return word.size() > 2 && word.starts_with("--") && std::isalpha(static_cast<unsigned char>(word[2])); }

// A word that is one variable, which the text set to one word before.
std::string filled_in(const std::string& word, const std::map<std::string, std::string>& variables) {
  std::string_view name = word;
  if (!name.starts_with('$')) return word;
  name.remove_prefix(1);
  if (name.starts_with('{') && name.ends_with('}')) name = name.substr(1, name.size() - 2);
  // A default, where the environment has none: ${NAME:-8}.
  const std::size_t otherwise = name.find(":-");
  const auto found = variables.find(std::string(name.substr(0, otherwise)));
  if (found != variables.end()) return found->second;
  return otherwise == name.npos ? word : std::string(name.substr(otherwise + 2));
}

json value_of(const std::string& text) {
  const json number = json::parse(text, nullptr, false);
  if (number.is_number()) return number;
  return text == "True" ? json(true) : text == "False" ? json(false) : json(text);
}

}  // namespace

bool has_arguments(std::string_view text) {
  const std::size_t first = text.find_first_not_of("\xEF\xBB\xBF \t\r\n");
  return first != text.npos && (text.substr(first).starts_with("--") || text.substr(first).starts_with("#!"));
}

Result<Document> arguments_of(std::string_view text, const std::string& file) {
  Document out{file, json::object(), {}};
  std::map<std::string, std::string> variables;
  std::string name;
  json values = json::array();
  const auto end_argument = [&] {
    if (!name.empty()) out.json[name] = values.empty() ? json(true) : values.size() == 1 ? values.front() : values;
    name.clear();
    values = json::array();
  };
  for (const Word& word : Words(text).all()) {
    const std::size_t equals = word.text.find('=');
    if (is_argument(word.text)) {
      end_argument();
      name = word.text.substr(2, equals == word.text.npos ? word.text.npos : equals - 2);
      std::replace(name.begin(), name.end(), '-', '_');
      out.places["/" + pointer_token(name)] = word.place;
      if (equals != word.text.npos) values.push_back(value_of(filled_in(word.text.substr(equals + 1), variables)));
    } else if (equals != word.text.npos && is_name(std::string_view(word.text).substr(0, equals))) {
      end_argument();
      variables[word.text.substr(0, equals)] = filled_in(word.text.substr(equals + 1), variables);
    } else if (word.text.empty() || word.text.find("[@]") != word.text.npos || word.text.ends_with(".py")) {
      end_argument();
    } else if (!name.empty()) {
      values.push_back(value_of(filled_in(word.text, variables)));
    }
  }
  end_argument();
  if (out.json.empty()) return InputError{file, "has no arguments; expected those of Megatron-LM, as --overlap-grad-reduce"};
  return out;
}

Result<Document> read_arguments(const std::filesystem::path& path) {
  const auto text = read_file(path);
  if (!text) return text.error();
  if (text->size() > configuration_bytes_max)
    return InputError{path.string(), "has " + std::to_string(text->size()) + " bytes; expected at most " + std::to_string(configuration_bytes_max)};
  return arguments_of(*text, path.string());
}

std::optional<std::uint32_t> ranks_of(const json& arguments) {
  const auto count = [&](const char* name) -> std::optional<std::uint64_t> {
    if (!arguments.contains(name) || !arguments[name].is_number_unsigned()) return std::nullopt;
    return arguments[name].get<std::uint64_t>();
  };
  const auto each = count("nproc_per_node");
  const std::uint64_t ranks = each.value_or(0) * count("nnodes").value_or(1);
  // A number of nodes that the script does not say makes that of the ranks unknown too.
  if (ranks == 0 || ranks > 1'000'000 || (arguments.contains("nnodes") && !count("nnodes"))) return std::nullopt;
  return static_cast<std::uint32_t>(ranks);
}

}  // namespace gradledger::audit
