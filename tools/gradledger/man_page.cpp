#include "tools/gradledger/man_page.h"

#include <vector>

#include <fmt/format.h>

#include "report/version/version.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::tool {
namespace {

// What groff would read as more than a letter: a backslash, a minus that is no hyphen, and a line that begins like a request.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else if (c == '\n') out += ' ';
    else out += c;
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

// "UINT:INT in [1 - 86400]" is a UINT; a set of words is these words.
std::string value_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{'), end = type.find('}', begin);
  if (begin != std::string::npos && end != std::string::npos) return type.substr(begin + 1, end - begin - 1);
  return type.substr(0, type.find(':'));
}

std::string paragraph(const CLI::Option& option) {
  const bool is_positional = option.get_positional();
  std::string out = fmt::format(".TP\n\\fB{}\\fR", plain(option.get_name(is_positional, true)));
  if (!is_positional && option.get_items_expected_max() > 0) out += fmt::format(" \\fI{}\\fR", plain(value_of(option)));
  out += "\n" + plain(option.get_description());
  if (!option.get_default_str().empty() && !is_positional) out += fmt::format(" (default: {})", plain(option.get_default_str()));
  return out + "\n";
}

std::string section(const CLI::App& verb) {
  std::string words;
  for (const CLI::Option* option : verb.get_options())
    if (option->get_positional()) words += " " + option->get_name(true);
  std::string out = fmt::format(".SS gradledger {}{}\n{}.\n", verb.get_name(), plain(words), plain(verb.get_description()));
  for (const CLI::Option* option : verb.get_options()) out += paragraph(*option);
  return out;
}

}  // namespace

CLI::App* add_man_page(CLI::App& app) { return app.add_subcommand("man", "Print the page for man(1)")->group(""); }

std::string man_page(const CLI::App& app) {
  std::string out = fmt::format(
      ".TH GRADLEDGER 1 \"\" \"gradledger {}\" \"User Commands\"\n"
      ".SH NAME\n"
      "gradledger \\- correctness oracle for gradient accumulation in distributed optimizers\n"
      ".SH SYNOPSIS\n"
      ".B gradledger\n"
      "\\fIVERB\\fR [\\fIOPTION\\fR...] [\\fIFILE\\fR...]\n"
      ".SH DESCRIPTION\n"
      "{}\n"
      "It holds models of DeepSpeed's and PyTorch's gradient code, release by release, and runs the same scenarios on a framework that is installed.\n"
      ".SH OPTIONS\n",
      report::version().number, plain(app.get_description()));
  for (const CLI::Option* option : app.get_options()) out += paragraph(*option);
  out += ".SH VERBS\n";
  for (const CLI::App* verb : app.get_subcommands({}))
    if (!verb->get_group().empty()) out += section(*verb);
  out += ".SH EXIT STATUS\n";
  for (const ExitCodeInfo& e : exit_codes) out += fmt::format(".TP\n.B {}\n{}\n", static_cast<int>(e.code), plain(e.meaning));
  return out + ".SH SEE ALSO\nThe pages in share/doc/gradledger/docs, of which first\\-ten\\-minutes.md is the one to begin with.\n";
}

}  // namespace gradledger::tool
