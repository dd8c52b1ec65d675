#include <algorithm>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/scenario/json_reader.h"
#include "verbs/coverage.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/verbs.h"
#include "report/version/version.h"

namespace gradledger::tool {
namespace {

std::vector<std::string> labels(const std::vector<const CoveringScenario*>& scenarios) {
  std::vector<std::string> out;
  for (const CoveringScenario* s : scenarios) out.push_back(s->label);
  return out;
}

std::string verdict_of(const EntryCoverage& row) {
  if (!row.problem.empty()) return "open: " + row.problem;
  return row.entry->not_covered.empty() ? "as expected" : "not covered";
}

nlohmann::ordered_json row_json(const EntryCoverage& row) {
  return {{"schema_version", 1},         {"tool", tool_json()},              {"entry", row.entry->id},      {"expected", classes_text(*row.entry)}, {"reported", row.reported},
          {"defective", labels(row.defects)}, {"clean", labels(row.clean)}, {"verdict", verdict_of(row)}, {"not_covered", row.entry->not_covered}};
}

int complain_of(const InputError& error) {
  complain(error);
  return error.unavailable ? unavailable : bad_input;
}

void print_rows(const std::vector<EntryCoverage>& rows, const Options& options) {
  std::size_t width = 8, expected_width = 8;
  for (const EntryCoverage& row : rows) {
    width = std::max(width, row.entry->id.size());
    expected_width = std::max(expected_width, classes_text(*row.entry).size());
  }
  if (!options.json) fmt::print("{:<{}}  {:<{}}  {:>9}  {:>5}  {}\n", "entry", width, "expected", expected_width, "defective", "clean", "verdict");
  for (const EntryCoverage& row : rows) {
    if (options.json) fmt::print("{}\n", row_json(row).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    else
      fmt::print("{:<{}}  {:<{}}  {:>9}  {:>5}  {}\n", row.entry->id, width, classes_text(*row.entry), expected_width, row.defects.size(), row.clean.size(), verdict_of(row));
  }
}

}  // namespace

int coverage(const std::string& folder, const Options& options) {
  auto found = covering_scenarios(folder, options);
  if (!found) return complain_of(found.error());
  std::vector<CoveringScenario> scenarios = std::move(found).value();
  std::string there;
  if (!options.check_page.empty()) {
    const auto text = read_file(options.check_page);
    if (!text) return complain_of({"--check", text.error().text()});
    there = *text;
  }
  if (const auto error = judge_all(scenarios, options)) return complain_of(*error);
  const std::vector<EntryCoverage> rows = coverage_of(scenarios);
  print_rows(rows, options);
  const std::string page = coverage_page(rows);
  if (!options.write_page.empty()) {
    std::ofstream out(options.write_page, std::ios::binary | std::ios::trunc);
    out << page;
    if (!out.flush()) return complain_of({"--write", options.write_page + " cannot be written"});
  }
  const auto open = std::count_if(rows.begin(), rows.end(), [](const EntryCoverage& r) { return !r.problem.empty(); });
  const bool outdated = !options.check_page.empty() && there != page;
  if (!options.json) fmt::print("{} entries, {} scenarios, {} open{}\n", rows.size(), scenarios.size(), open, outdated ? "; " + options.check_page + " is out of date" : "");
  return open == 0 && !outdated ? clean : findings;
}

}  // namespace gradledger::tool
