// gradledger-convert-recordings: recordings of real framework runs into the compact form that the repository keeps.
#include <exception>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "conformance/convert.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::conform {
namespace {

int run(int argc, char** argv) {
  CLI::App app{"Converts recordings into the compact form, and reads them again to see that nothing was lost."};
  std::vector<std::string> files;
  std::string to;
  Selection selection;
  const std::map<std::string, Keep> kinds{{"all", Keep::all}, {"expressible", Keep::expressible}, {"inexpressible", Keep::inexpressible}};
  app.add_option("FILE", files, "Recordings: JSON lines, plain or gzip (.gz), in either form")->required();
  app.add_option("--output", to, "Where to write (gzip)")->required();
  app.add_option("--keep", selection.keep, "Which runs: all, expressible as a scenario, or inexpressible")->transform(CLI::CheckedTransformer(kinds));
  app.add_option("--because", selection.because, "Of inexpressible runs, only those whose reason holds this text");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "gradledger-convert-recordings: {}\n", error.what());
    return tool::bad_input;
  }
  const auto converted = convert(files, to, selection);
  if (!converted) {
    fmt::print(stderr, "gradledger-convert-recordings: {}\n", converted.error().text());
    return tool::bad_input;
  }
  for (const auto& [why, count] : converted->inexpressible) fmt::print("{:4} cannot be expressed: {}\n", count, why);
  fmt::print("{} read, {} written to {} and read again without loss\n", converted->read, converted->written, to);
  return tool::clean;
}

}  // namespace
}  // namespace gradledger::conform

int main(int argc, char** argv) {
  try {
    return gradledger::conform::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gradledger-convert-recordings: internal error: {}\n", error.what());
    return gradledger::tool::internal_error;
  }
}
