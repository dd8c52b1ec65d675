// Standard output, and the reports for other programs beside it: the one place that knows which formats were asked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "report/format.h"
#include "tools/gradledger/html_file.h"
#include "tools/gradledger/look.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/options.h"
#include "tools/gradledger/records_file.h"
#include "tools/gradledger/result_files.h"
#include "tools/gradledger/stopwatch.h"
#include "tools/gradledger/verbs.h"

namespace gradledger::tool {

class Output {
 public:
  // Precondition: the option parser let the format pass. summary: of the whole run, but for what is printed.
  Output(const Options& options, ResultFiles& results, RecordsFile records, report::Summary summary)
      : options_(options),
        renderer_(renderer_of(options, options.repeat)),
        results_(results),
        records_(std::move(records)),
        html_(options.html),
        summary_(std::move(summary)),
        listener_([this](const InputError& error, int code) { print(report::error_row(error, code)); }) {
    expects(renderer_ != nullptr, "a format of the table");
  }
  Output(const Output&) = delete;

  template <class Value>
  void print(const Value& value) const {
    results_.add(value);
    summary_.add(value);
    write(renderer_->text(value));
    records_.add(value);
    if (!silent_) html_.add(value);
  }
  // In the file of --records alone.
  template <class Value>
  void record(const Value& value) const {
    records_.add(value);
  }
  // Another process prints the same, and writes the page; the records of this one are its own.
  void be_silent(bool silent) const { silent_ = silent; }
  bool silent() const { return silent_; }
  // Whose report it is, of a verb that prints that of another run.
  void is_of(const std::string& verb, std::uint64_t seed, const std::string& command) const {
    summary_.verb = verb;
    summary_.seed = seed;
    renderer_ = renderer_of(options_, command);
    records_.is_of(command);
  }
  // Errors in a file instead of a value; who prints records prints one for each.
  void refuse(const std::string& file, const std::vector<InputError>& errors) const {
    results_.add_errors(file, errors);
    for (const InputError& error : errors) complain(error);
  }
  void refuse(const std::string& file, const InputError& error) const { refuse(file, std::vector{error}); }
  // A file that was not run, and why.
  void skip(const std::string& file, const std::string& why) const { results_.add_not_run(file, why); }
  void head(const std::string& command) const { write(renderer_->head(command)); }
  // Nobody reads what is printed, or the disk is full.
  static bool failed() { return std::ferror(stdout) != 0; }
  void between() const { write(renderer_->between()); }
  // Writes the files that are whole only at the end. The exit code of the command, given that of the verb.
  int finish(int code) const {
    code = html_.finish(code);
    const auto error = records_.error();
    if (error) complain(*error);
    return error ? std::max<int>(code, bad_input) : code;
  }
  // Given up only behind the last line: processes of mpirun leave together, since it ends the others once one has left with findings.
  void keep(std::shared_ptr<void> what) const { kept_ = std::move(what); }
  // Nothing is printed after it.
  void end(int code) {
    summary_.exit_code = code;
    summary_.seconds = watch_.seconds();
    if (summary_.ended_by.empty() && code == interrupted) summary_.ended_by = "SIGINT";
    if (summary_.ended_by.empty() && code == terminated) summary_.ended_by = "SIGTERM";
    write(renderer_->text(summary_));
    records_.add(summary_);
  }

 private:
  static std::unique_ptr<report::Renderer> renderer_of(const Options& options, const std::string& command) {
    return report::renderer(options.json ? "json" : options.format, style_of(options.look), {.command = command});
  }

  // At once: who reads a pipe of a long gate sees each row when it is there.
  void write(const std::string& text) const {
    if (silent_ || results_.take_standard_output()) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  const Options& options_;
  mutable std::shared_ptr<void> kept_;
  mutable std::unique_ptr<report::Renderer> renderer_;
  ResultFiles& results_;
  mutable RecordsFile records_;
  HtmlFile html_;
  mutable report::Summary summary_;  // printing counts
  mutable bool silent_ = false;
  const Stopwatch watch_;
  const ErrorListener listener_;
};

}  // namespace gradledger::tool
