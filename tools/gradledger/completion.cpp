#include "tools/gradledger/completion.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "sim/base/contract.h"
#include "tools/gradledger/numbers.h"

namespace gradledger::tool {
namespace {

struct Choice {
  std::string name;  // "--producer"
  std::string what;
  bool takes_value = false;
  std::vector<std::string> values;  // none: a file
};

struct Verb {
  std::string name, what;
  std::vector<Choice> options;
  std::vector<std::string> values;  // of its first word; none: a file
};

// "{a,b,c}" in what CLI11 says of a type.
std::vector<std::string> values_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{'), end = type.find('}', begin);
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

// One line, without what a shell would read as more than a letter.
std::string plain(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return std::string_view("'\"`$\\[]:\n").find(c) != std::string_view::npos; }, ' ');
  return text.substr(0, text.find(';'));
}

Verb described(const CLI::App& app) {
  Verb out{app.get_name(), plain(app.get_description()), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      if (out.values.empty()) out.values = values_of(*option);
      continue;
    }
    const bool takes_value = option->get_items_expected_max() > 0;
    for (const std::string& name : option->get_lnames()) out.options.push_back({"--" + name, plain(option->get_description()), takes_value, values_of(*option)});
    for (const std::string& name : option->get_snames()) out.options.push_back({"-" + name, plain(option->get_description()), takes_value, values_of(*option)});
  }
  return out;
}

std::vector<Verb> verbs_of(const CLI::App& app) {
  std::vector<Verb> out;
  for (const CLI::App* verb : app.get_subcommands({}))
    if (!verb->get_group().empty()) out.push_back(described(*verb));
  return out;
}

std::string joined_names(const std::vector<Choice>& options) {
  std::string out;
  for (const Choice& option : options) out += (out.empty() ? "" : " ") + option.name;
  return out;
}

std::string bash_script(const std::vector<Verb>& verbs) {
  std::string names, by_verb, by_value;
  for (const Verb& verb : verbs) {
    names += (names.empty() ? "" : " ") + verb.name;
    by_verb += fmt::format("    {}) options='{}'; words='{}' ;;\n", verb.name, joined_names(verb.options), fmt::join(verb.values, " "));
    for (const Choice& option : verb.options)
      if (option.takes_value)
        by_value += fmt::format("    {}:{}) COMPREPLY=($(compgen {} -- \"$word\")); return ;;\n", verb.name, option.name,
                                option.values.empty() ? "-f" : fmt::format("-W '{}'", fmt::join(option.values, " ")));
  }
  return fmt::format(R"(# bash completion of gradledger
_gradledger() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]}} options='' words=''
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then COMPREPLY=($(compgen -W '{} --help --version' -- "$word")); return; fi
  case "$verb:$before" in
{}  esac
  case "$verb" in
{}  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
    *) if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$word")); else COMPREPLY=($(compgen -f -- "$word")); fi ;;
  esac
}}
complete -o filenames -F _gradledger gradledger
)",
                     names, by_value, by_verb);
}

std::string zsh_script(const std::vector<Verb>& verbs) {
  std::string names, by_verb;
  for (const Verb& verb : verbs) {
    names += fmt::format("    '{}:{}'\n", verb.name, verb.what);
    by_verb += fmt::format("    {}) _arguments", verb.name);
    for (const Choice& option : verb.options) {
      const std::string values = !option.takes_value ? "" : option.values.empty() ? ":value:_files" : fmt::format(":value:({})", fmt::join(option.values, " "));
      by_verb += fmt::format(" '{}[{}]{}'", option.name, option.what, values);
    }
    by_verb += verb.values.empty() ? " '*:file:_files' ;;\n" : fmt::format(" '1:what:({})' ;;\n", fmt::join(verb.values, " "));
  }
  return fmt::format(R"(#compdef gradledger
_gradledger() {{
  local -a verbs
  verbs=(
{}  )
  if (( CURRENT == 2 )); then _describe verb verbs; return; fi
  local verb=$words[2]
  shift words
  (( CURRENT-- ))
  case $verb in
{}  esac
}}
_gradledger "$@"
)",
                     names, by_verb);
}

std::string fish_script(const std::vector<Verb>& verbs) {
  std::string out = "# fish completion of gradledger\n";
  for (const Verb& verb : verbs) out += fmt::format("complete -c gradledger -n __fish_use_subcommand -f -a {} -d '{}'\n", verb.name, verb.what);
  for (const Verb& verb : verbs) {
    const std::string where = fmt::format("complete -c gradledger -n '__fish_seen_subcommand_from {}'", verb.name);
    for (const Choice& option : verb.options) {
      const bool is_long = option.name.starts_with("--");
      const std::string values = !option.takes_value ? "" : option.values.empty() ? " -r -F" : fmt::format(" -x -a '{}'", fmt::join(option.values, " "));
      out += fmt::format("{} {} {}{} -d '{}'\n", where, is_long ? "-l" : "-s", option.name.substr(is_long ? 2 : 1), values, option.what);
    }
    if (!verb.values.empty()) out += fmt::format("{} -f -a '{}'\n", where, fmt::join(verb.values, " "));
  }
  return out;
}

}  // namespace

CLI::App* add_completion(CLI::App& app, std::string& shell) {
  CLI::App* verb = app.add_subcommand("completion", "Print a script that completes verbs, options and values in a shell");
  verb->add_option("SHELL", shell, "bash, zsh or fish")->required()->check(OneOf({"bash", "zsh", "fish"}));
  return verb;
}

std::string completion_script(const CLI::App& app, const std::string& shell) {
  const std::vector<Verb> verbs = verbs_of(app);
  if (shell == "bash") return bash_script(verbs);
  if (shell == "zsh") return zsh_script(verbs);
  expects(shell == "fish", "a shell that add_completion lets pass");
  return fish_script(verbs);
}

}  // namespace gradledger::tool
