#include "tools/gradledger/call.h"

#include <algorithm>
#include <cctype>

#include <CLI/CLI.hpp>

#include "sim/scenario/spelling.h"
#include "verbs/command.h"

namespace gradledger::tool {

using verbs::shell_word;

std::string what_was_meant(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  if (!dynamic_cast<const CLI::ExtrasError*>(&error) && !dynamic_cast<const CLI::RequiredError*>(&error)) return "";  // an option that there is, with a wrong value
  std::vector<std::string> known;
  const CLI::App* verb = &app;
  for (const CLI::App* one : app.get_subcommands({})) {
    if (!one->get_group().empty()) known.push_back(one->get_name());
    if (one->parsed()) verb = one;
  }
  const bool in_verb = verb != &app;
  if (in_verb) known.clear();
  for (const CLI::Option* option : verb->get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    for (const std::string& name : option->get_snames()) known.push_back("-" + name);
  }
  for (int i = 1; i < argc; ++i) {
    const std::string word = std::string(argv[i]).substr(0, std::string_view(argv[i]).find('='));
    const bool is_known = std::find(known.begin(), known.end(), word) != known.end();
    if (is_known || (in_verb && !word.starts_with('-'))) continue;
    if (dynamic_cast<const CLI::ExtrasError*>(&error) && std::string_view(error.what()).find(word) == std::string_view::npos) continue;
    const std::string closest = closest_of(word, known);
    // Any two letters are alike; the same one in another case is meant.
    const bool letters = word.size() == 2 && closest.size() == 2;
    if (closest.empty() || (letters && std::tolower(static_cast<unsigned char>(word[1])) != std::tolower(static_cast<unsigned char>(closest[1])))) continue;
    return "; did you mean \"" + closest + "\"?";
  }
  return "";
}

namespace {

bool is_one_of(const std::vector<std::string>& names, const std::string& word) { return std::find(names.begin(), names.end(), word) != names.end(); }

// Without these options and their values, whether that is the next word or behind a "=".
std::vector<std::string> without(const std::vector<std::string>& words, const std::vector<std::string>& flags, const std::vector<std::string>& with_value) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") return out.insert(out.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end()), out;
    if (is_one_of(with_value, word)) ++i;
    else if (!is_one_of(flags, word) && (word.find('=') == std::string::npos || !is_one_of(with_value, word.substr(0, word.find('='))))) out.push_back(word);
  }
  return out;
}

}  // namespace

std::vector<std::string> without_form(const std::vector<std::string>& words) { return without(words, {"--json", "--mpi"}, {"--format", "--jobs", "--records"}); }

std::vector<std::string> without_sharding(const std::vector<std::string>& words) {
  return without(without_form(words), {"--github", "-q", "--quiet", "-v", "--verbose"},
                 {"--shard", "--findings", "--html", "--junit", "--sarif", "--tap", "--driver-log", "--state", "--durations", "--color", "--width"});
}

std::string command_line(const std::vector<std::string>& words) {
  std::string out = "gradledger";
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t dashes = std::min(words[i].find_first_not_of('-'), words[i].size());
    out += " " + words[i].substr(0, dashes) + (dashes > 0 && dashes == words[i].size() ? "" : shell_word(words[i].substr(dashes)));
  }
  return out;
}

}  // namespace gradledger::tool
