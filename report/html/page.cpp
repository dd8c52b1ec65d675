#include <fmt/format.h>

#include "report/html/assets.h"
#include "report/html/html.h"
#include "report/version/version.h"

namespace gradledger::report {
namespace {

// As text between tags, or in an attribute in double quotes.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return out;
}

// JSON in a script element ends where "</script" stands, in whatever string that may be; a quoted JSON string takes the escapes.
std::string inert(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    switch (c) {
      case '<': out += "\\u003c"; break;
      case '>': out += "\\u003e"; break;
      case '&': out += "\\u0026"; break;
      default: out += c;
    }
  }
  return out;
}

// Nothing is loaded and nothing is sent, even if a script tried to.
constexpr const char* policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

}  // namespace

std::string html_page(const std::string& title, std::span<const std::string> parts) {
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out += fmt::format("<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n", policy);
  out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n";
  out += fmt::format("<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n", escaped(title), page_style);
  out += fmt::format("<header><h1>gradledger</h1><p id=\"tool\">{}</p></header>\n<nav id=\"parts\" aria-label=\"Parts of this report\"></nav>\n<main id=\"main\"></main>\n",
                     escaped(version_text()));
  out += "<noscript><p>This page draws its tables with a script that is part of it. Allow scripts for this file, or use --json or the text on the terminal.</p></noscript>\n";
  for (const std::string& part : parts) out += fmt::format("<script type=\"application/json\" class=\"part\">{}</script>\n", inert(part));
  return out + fmt::format("<script>\n{}</script>\n</body>\n</html>\n", page_script);
}

}  // namespace gradledger::report
