#include "tools/gradledger/look.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "tools/gradledger/numbers.h"

namespace gradledger::tool {
namespace {

constexpr std::size_t width_min = 40, width_max = 10000;

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

bool coloured(const std::string& colour) {
  if (colour != "auto") return colour == "always";
  const char* terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && !is_set("NO_COLOR") && terminal != nullptr && std::string_view(terminal) != "dumb";
}

std::size_t width_of_terminal() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < width_min) return report::any_width;
  return size.ws_col;
}

}  // namespace

void add_look(CLI::App* verb, Look& look) {
  verb->add_option("--color", look.colour, "auto: on a terminal, where neither NO_COLOR nor TERM=dumb is set")->check(OneOf({"auto", "always", "never"}))->capture_default_str();
  verb->add_option("--width", look.width, "Columns of a line of text; else those of the terminal, and in a file or a pipe as many as it takes")
      ->check(whole_number)
      ->check(CLI::Range(width_min, width_max));
  CLI::Option* quiet = verb->add_flag("-q,--quiet", look.quiet, "Verdicts alone; gate: and what is not as expected");
  verb->add_flag("-v,--verbose", look.verbose, "Every rank by itself, every buffer with its norm")->excludes(quiet);
}

report::Style style_of(const Look& look) {
  return {.colour = coloured(look.colour),
          .width = look.width > 0 ? look.width : width_of_terminal(),
          .detail = look.quiet     ? report::Detail::verdict
                    : look.verbose ? report::Detail::all
                                   : report::Detail::normal};
}

}  // namespace gradledger::tool
