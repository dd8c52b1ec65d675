#include "report/corpus.h"
#include "sim/base/files.h"
#include "sim/scenario/json_reader.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/output.h"
#include "tools/gradledger/progress.h"
#include "tools/gradledger/verbs.h"
#include "verbs/coverage.h"
#include "verbs/new_file.h"

namespace gradledger::tool {
namespace {

int complain_of(const InputError& error) {
  complain(error);
  return error.unavailable ? unavailable : bad_input;
}

}  // namespace

int coverage(const std::string& folder, const Options& options, const Output& out) {
  auto found = verbs::covering_scenarios(folder, options);
  if (!found) return complain_of(found.error());
  std::vector<verbs::CoveringScenario> scenarios = std::move(found).value();
  std::string there;
  if (!options.check_page.empty()) {
    const auto text = read_file(options.check_page);
    if (!text) return complain_of({"--check", text.error().text()});
    there = *text;
  }
  const auto error = [&] {
    const Progress progress(std::to_string(scenarios.size()) + " scenarios that cover entries");
    return verbs::judge_all(scenarios, options);
  }();
  if (error) return complain_of(*error);
  report::CoverageReport report;
  report.rows = verbs::coverage_of(scenarios);
  report.scenarios = scenarios.size();
  const std::string page = report::coverage_page(report.rows);
  if (!options.write_page.empty()) {
    if (const auto error = verbs::replace_or_write(options.write_page, page)) return complain_of({"--write", options.write_page + " " + error->message});
  }
  if (!options.check_page.empty() && there != page) report.outdated_page = options.check_page;
  out.print(report);
  return report.open() == 0 && report.outdated_page.empty() ? clean : findings;
}

}  // namespace gradledger::tool
