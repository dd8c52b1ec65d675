// gradledger-conform: judges recordings of real framework runs. One line a run, totals last.
#include <algorithm>
#include <array>
#include <exception>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "sim/scenario/json_reader.h"
#include "tools/conformance/compare.h"
#include "tools/conformance/files.h"
#include "tools/conformance/judged/judge.h"
#include "tools/conformance/recording.h"
#include "tools/conformance/torch/compare.h"
#include "tools/gradledger/exit_codes.h"
#include "report/version/version.h"

namespace gradledger::conform {
namespace {

constexpr std::array<const char*, 3> outcome_names{"agrees", "differs", inexpressible};

struct Totals {
  std::array<std::uint64_t, 3> by_outcome{};
  std::uint64_t in_part = 0;
  std::uint64_t elements = 0;
  std::uint64_t collectives = 0;

  void add(const Comparison& c) {
    ++by_outcome[static_cast<std::size_t>(c.outcome)];
    in_part += c.in_part();
    elements += c.elements;
    collectives += c.collectives;
  }
};

void print(const Comparison& c, bool json) {
  const char* outcome = outcome_names[static_cast<std::size_t>(c.outcome)];
  if (json) {
    const nlohmann::ordered_json line{
        {"run", c.name}, {"version", c.version}, {"outcome", outcome}, {"why", c.why}, {"elements_compared", c.elements}, {"collectives_compared", c.collectives}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print("{:20}{} at {}{}{}\n", outcome, c.name, c.version, c.why.empty() ? "" : ": ", c.why);
  }
}

void print(const Totals& totals, bool json) {
  const auto [agree, differ, left_out] = totals.by_outcome;
  if (json) {
    const nlohmann::ordered_json line{{"schema_version", 1},
                                      {"tool", report::tool_json()},
                                      {"agree", agree},
                                      {"agree_in_part", totals.in_part},
                                      {"differ", differ},
                                      {"cannot_be_expressed", left_out},
                                      {"elements_compared", totals.elements},
                                      {"collectives_compared", totals.collectives}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print("{} agree{}, {} differ, {} cannot be expressed; {} elements and {} collectives compared\n", agree,
               totals.in_part == 0 ? "" : fmt::format(" ({} of them in part)", totals.in_part), differ, left_out, totals.elements, totals.collectives);
  }
}

// Of whichever framework the line is.
Result<Comparison> judge_line(const nlohmann::json& line) {
  if (torch::is_ddp_run(line)) {
    const auto run = torch::read_ddp_run(line);
    return run ? torch::judge(*run) : run.error();
  }
  const auto run = read_run(line);
  return run ? judge(*run) : run.error();
}

std::optional<InputError> judge_file(const std::string& path, bool json, Totals& totals) {
  return for_each_line(path, [&](const std::string& line, const std::string& where) -> std::optional<InputError> {
    const auto document = read_json(line);
    if (!document) return InputError{where, document.error().text()};
    const auto comparison = judge_line(*document);
    if (!comparison) return InputError{where, comparison.error().text()};
    print(*comparison, json);
    totals.add(*comparison);
    return std::nullopt;
  });
}

// By the oracle, with no engine.
std::optional<InputError> judge_file_alone(const std::string& path, bool json, JudgedTotals& totals) {
  return for_each_line(path, [&](const std::string& line, const std::string& where) -> std::optional<InputError> {
    const auto document = read_json(line);
    if (!document) return InputError{where, document.error().text()};
    if (torch::is_ddp_run(*document)) return InputError{where, "is a run of DistributedDataParallel; --judge expects recordings of DeepSpeed"};
    const auto run = read_run(*document);
    if (!run) return InputError{where, run.error().text()};
    const auto judged = judge_alone(*run);
    if (!judged) return InputError{where, judged.error().text()};
    if (json) fmt::print("{}\n", json_of(*judged).dump());
    else fmt::print("{}", text_of(*judged));
    totals.add(*judged);
    return std::nullopt;
  });
}

int judge_files_alone(const std::vector<std::string>& files, bool json) {
  JudgedTotals totals;
  int code = tool::clean;
  for (const std::string& file : files)
    if (const auto error = judge_file_alone(file, json, totals)) {
      fmt::print(stderr, "gradledger-conform: {}\n", error->text());
      code = tool::bad_input;
    }
  if (json) fmt::print("{}\n", json_of(totals).dump());
  else fmt::print("{}", text_of(totals));
  if (code != tool::clean || totals.with_findings > 0) return std::max<int>(code, totals.with_findings == 0 ? tool::clean : tool::findings);
  if (totals.clean > 0) return tool::clean;
  fmt::print(stderr, "gradledger-conform: nothing was judged: none of {} runs shows a gradient that is due\n", totals.not_judged);
  return tool::unavailable;
}

// A file that is bad input does not keep the others from being judged.
int judge_files(const std::vector<std::string>& files, bool json) {
  Totals totals;
  int code = tool::clean;
  for (const std::string& file : files)
    if (const auto error = judge_file(file, json, totals)) {
      fmt::print(stderr, "gradledger-conform: {}\n", error->text());
      code = tool::bad_input;
    }
  print(totals, json);
  const auto [agree, differ, left_out] = totals.by_outcome;
  if (code != tool::clean || differ > 0) return std::max<int>(code, differ == 0 ? tool::clean : tool::findings);
  if (agree > 0) return tool::clean;
  fmt::print(stderr, "gradledger-conform: nothing was judged: none of {} runs can be expressed\n", left_out);
  return tool::unavailable;
}

int run(int argc, char** argv) {
  CLI::App app{"Holds recorded runs of a real framework against replays by the engine and release that produced them."};
  std::vector<std::string> files;
  bool json = false, alone = false;
  app.add_option("FILE", files, "Recordings: JSON lines, plain or gzip (.gz), in either form")->required();
  app.set_version_flag("--version", report::version_text(), "Version, commit, compiler and build type");
  app.add_flag("--judge", alone, "Judge the runs by the oracle alone, with no engine: what the framework applied against what its documentation has due");
  app.add_flag("--json", json, "One JSON object a run, totals last");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "gradledger-conform: {}\n", error.what());
    return tool::bad_input;
  }
  return alone ? judge_files_alone(files, json) : judge_files(files, json);
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
