// gradledger-conform: judges recordings of real framework runs. One line a run, totals last.
#include <array>
#include <exception>
#include <fstream>

#include <CLI/CLI.hpp>
#include <boost/iostreams/filter/gzip.hpp>
#include <boost/iostreams/filtering_stream.hpp>
#include <fmt/format.h>

#include "sim/base/limits.h"
#include "sim/scenario/json_reader.h"
#include "tools/conform/compare.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::conform {
namespace {

constexpr std::array<const char*, 3> outcome_names{"agrees", "differs", inexpressible};

struct Totals {
  std::array<std::uint64_t, 3> by_outcome{};
  std::uint64_t compared = 0;
};

void print(const Comparison& c, bool json) {
  const char* outcome = outcome_names[static_cast<std::size_t>(c.outcome)];
  if (json) {
    const nlohmann::ordered_json line{{"run", c.name}, {"version", c.version}, {"outcome", outcome}, {"why", c.why}, {"elements_compared", c.compared}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print("{:20}{} at {}{}{}\n", outcome, c.name, c.version, c.why.empty() ? "" : ": ", c.why);
  }
}

// One line of a file. Errors: not a recording.
Result<Comparison> judge_line(const std::string& line) {
  const auto json = read_json(line);
  if (!json) return json.error();
  const auto recording = read_recording(*json);
  if (recording) return compare(*recording);
  if (recording.error().where != inexpressible) return recording.error();
  Comparison out;
  out.name = json->value("name", "?");
  out.version = json->value("version", "?");
  out.outcome = Outcome::inexpressible;
  out.why = recording.error().message;
  return out;
}

std::optional<InputError> judge_file(const std::string& path, bool json, Totals& totals) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return InputError{path, "cannot be opened"};
  boost::iostreams::filtering_istream in;
  if (path.ends_with(".gz")) in.push(boost::iostreams::gzip_decompressor());
  in.push(file);
  std::string line;
  std::uint64_t number = 0;
  try {
    while (std::getline(in, line)) {
      ++number;
      const std::string where = fmt::format("{}, line {}", path, number);
      if (line.size() > limits::file_bytes_max) return InputError{where, fmt::format("is longer than {} bytes", limits::file_bytes_max)};
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const auto comparison = judge_line(line);
      if (!comparison) return InputError{where, comparison.error().text()};
      print(*comparison, json);
      ++totals.by_outcome[static_cast<std::size_t>(comparison->outcome)];
      totals.compared += comparison->compared;
    }
  } catch (const boost::iostreams::gzip_error&) {
    return InputError{path, "is not a whole gzip file"};
  }
  if (in.bad()) return InputError{path, "cannot be read to its end"};
  if (number == 0) return InputError{path, "holds no recording; judging nothing does not pass"};
  return std::nullopt;
}

int run(int argc, char** argv) {
  CLI::App app{"Holds recorded runs of a real framework against replays by the engine and release that produced them."};
  std::vector<std::string> files;
  bool json = false;
  app.add_option("FILE", files, "Recordings: JSON lines, plain or gzip (.gz)")->required();
  app.add_flag("--json", json, "One JSON object a run, totals last");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "gradledger-conform: {}\n", error.what());
    return tool::bad_input;
  }
  Totals totals;
  for (const std::string& file : files)
    if (const auto error = judge_file(file, json, totals)) {
      fmt::print(stderr, "gradledger-conform: {}\n", error->text());
      return tool::bad_input;
    }
  const auto [agree, differ, left_out] = totals.by_outcome;
  if (json) {
    const nlohmann::ordered_json line{{"agree", agree}, {"differ", differ}, {"cannot_be_expressed", left_out}, {"elements_compared", totals.compared}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print("{} agree, {} differ, {} cannot be expressed; {} elements compared\n", agree, differ, left_out, totals.compared);
  }
  if (agree + differ == 0) {
    fmt::print(stderr, "gradledger-conform: no run could be expressed; judging nothing does not pass\n");
    return tool::bad_input;
  }
  return differ == 0 ? tool::clean : tool::findings;
}

}  // namespace
}  // namespace gradledger::conform

int main(int argc, char** argv) {
  try {
    return gradledger::conform::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gradledger-conform: internal error: {}\n", error.what());
    return gradledger::tool::internal_error;
  }
}
