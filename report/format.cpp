#include "report/format.h"

#include <array>

#include "report/json.h"
#include "report/terminal.h"

namespace gradledger::report {

std::span<const Format> formats() {
  static const std::array<Format, 2> all{{
      {"terminal", "text for people", make_terminal},
      {"json", "JSON for programs, an object a line", make_json},
  }};
  return all;
}

std::unique_ptr<Renderer> renderer(std::string_view format, const Style& style, const Origin& origin) {
  for (const Format& f : formats())
    if (f.name == format) return f.make(style, origin);
  return nullptr;
}

}  // namespace gradledger::report
