#include "tools/gradledger/result_files.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include <fmt/format.h>

#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/verbs.h"
#include "verbs/new_file.h"

namespace gradledger::tool {
namespace {

namespace fs = std::filesystem;

constexpr const char* summary_variable = "GITHUB_STEP_SUMMARY";

bool is_appended(const fs::path& file, const std::string& text) {
  std::ofstream stream(file, std::ios::binary | std::ios::app);
  stream << text;
  stream.close();
  return stream.good();
}

std::string unwritable(const fs::path& file) {
  std::error_code failed;
  if (fs::is_directory(file, failed)) return "is a directory; expected a file";
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, failed)) return "lies in no folder that is there";
  const bool can = fs::exists(file, failed) ? access(file.c_str(), W_OK) == 0 : access(folder.c_str(), W_OK) == 0;
  return can ? "" : "cannot be written";
}

std::string random_word() {
  std::random_device random;
  std::string out;
  for (int i = 0; i < 4; ++i) out += fmt::format("{:08x}", random());
  return out;
}

}  // namespace

ResultFiles::ResultFiles(const Options& options, std::string verb) : options_(options) {
  results_.command = options.command_line;
  results_.verb = std::move(verb);
  results_.seed = options.seed;
  results_.producer = options.producer;
  takes_standard_output_ = std::any_of(options.result_files.begin(), options.result_files.end(), [](const auto& entry) { return entry.second == "-"; });
}

std::optional<InputError> ResultFiles::problem() const {
  std::string first;
  std::map<std::string, std::string> taken;
  for (const auto& [option, file] : {std::pair<std::string, std::string>{"--html", options_.html}, {"--records", options_.records}})
    if (!file.empty() && !taken.try_emplace(file, option).second) return InputError{option, "names the file of " + taken[file] + "; expected another one"};
  for (const auto& [name, file] : options_.result_files) {
    if (file.empty()) continue;
    const std::string option = "--" + name;
    if (const auto [other, added] = taken.try_emplace(file, option); !added && file != "-")
      return InputError{option, "names the file of " + other->second + "; expected another one"};
    if (file == "-") {
      if (!first.empty()) return InputError{option, "goes to standard output, as " + first + " does; expected one report there"};
      if (options_.json || options_.github || options_.format != "terminal")
        return InputError{option, "goes to standard output, and so does what --json, --format or --github print; expected a file"};
      first = option;
    } else if (const std::string why = unwritable(file); !why.empty()) return InputError{option, file + " " + why};
  }
  return std::nullopt;
}

void ResultFiles::begin() {
  if (!options_.github) return;
  resume_ = random_word();
  fmt::print("::stop-commands::{}\n", resume_);
  std::fflush(stdout);
}

void ResultFiles::add(const report::FuzzReport& report) {
  for (report::CaseResult& result : report::cases_of(report)) add_case(std::move(result));
}

void ResultFiles::add(const report::GateReport& report) {
  if (!report.ended_by.empty() && report.ended_by != "-x")
    add_errors("", {{"", fmt::format("ended by {}, with {} of {} scenarios held", report.ended_by, report.rows.size(), report.files)}});
}

void ResultFiles::add_errors(const std::string& file, const std::vector<InputError>& errors) {
  // What a report showed of the file before does not count.
  if (!results_.cases.empty() && !file.empty() && results_.cases.back().file == file) results_.cases.pop_back();
  add_case(report::error_case(file.empty() ? "the run" : file, file, errors));
}

void ResultFiles::add_not_run(const std::string& file, const std::string& why) {
  report::CaseResult out;
  out.name = out.file = file;
  out.status = report::Status::not_run;
  out.why = why;
  add_case(std::move(out));
}

void ResultFiles::explain(int code) {
  if (code == clean || code == findings || results_.count(report::Status::error) > 0) return;
  const auto meaning = std::find_if(exit_codes.begin(), exit_codes.end(), [&](const ExitCodeInfo& info) { return info.code == code; });
  add_errors("",
             {{"", fmt::format("ended with exit code {}{}. What was wrong is on standard error.", code, meaning == exit_codes.end() ? "" : ", " + std::string(meaning->meaning))}});
}

std::optional<InputError> ResultFiles::write(const std::string& option, const std::string& file, const std::string& text) const {
  if (file == "-") {
    fmt::print("{}", text);
    return std::nullopt;
  }
  std::error_code missing;
  for (const report::CaseResult& result : results_.cases)
    if (!result.file.empty() && fs::equivalent(file, result.file, missing)) return InputError{option, file + " is a scenario of this run; expected another file"};
  if (const auto error = verbs::replace_or_write(file, text)) return InputError{option, file + " " + error->message};
  return std::nullopt;
}

std::optional<InputError> ResultFiles::finish() {
  for (const report::CaseResult& result : results_.cases)
    if (!result.producer.empty()) results_.producer = result.producer;
  std::optional<InputError> error;
  for (const report::ResultFormat& format : report::result_formats()) {
    const auto asked = options_.result_files.find(std::string(format.name));
    if (asked == options_.result_files.end() || asked->second.empty()) continue;
    const auto failed = write("--" + asked->first, asked->second, format.text(results_));
    if (failed && !error) error = failed;
  }
  if (!options_.github) return error;
  fmt::print("::{}::\n{}", resume_, report::github_annotations(results_));
  const char* summary = std::getenv(summary_variable);
  if (summary && *summary && !is_appended(summary, report::github_summary(results_)) && !error) error = {summary_variable, std::string(summary) + " cannot be written"};
  return error;
}

int with_results(ResultFiles& files, const std::function<int()>& run) {
  if (const auto error = files.problem()) {
    complain(*error);
    return bad_input;
  }
  files.begin();
  int code = clean;
  try {
    code = run();
  } catch (const std::exception& error) {
    files.add_errors("", {{"", std::string("the run broke off: ") + error.what()}});
    if (const auto failed = files.finish()) complain(*failed);
    throw;
  }
  files.explain(code);
  if (const auto error = files.finish()) {
    complain(*error);
    return std::max<int>(code, bad_input);
  }
  return code;
}

}  // namespace gradledger::tool
