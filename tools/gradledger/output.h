// Standard output, and the reports for other programs beside it: the one place that knows which formats were asked for.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "report/format.h"
#include "tools/gradledger/html_file.h"
#include "tools/gradledger/look.h"
#include "tools/gradledger/options.h"
#include "tools/gradledger/result_files.h"
#include "tools/gradledger/verbs.h"

namespace gradledger::tool {

class Output {
 public:
  // Precondition: the option parser let the format pass.
  Output(const Options& options, ResultFiles& results)
      : renderer_(report::renderer(options.json ? "json" : options.format, style_of(options.look))), results_(results), html_(options.html), command_(options.command_line) {
    expects(renderer_ != nullptr, "a format of the table");
  }

  template <class Value>
  void print(const Value& value) const {
    results_.add(value);
    write(renderer_->text(value));
    html_.add(value);
  }
  // Errors in a file instead of a value.
  void refuse(const std::string& file, const std::vector<InputError>& errors) const {
    results_.add_errors(file, errors);
    report::RefusedFile refused{.command = command_, .file = file, .unavailable = !errors.empty() && errors.front().unavailable};
    for (const InputError& error : errors) refused.problems.push_back(report::problem_of(error, file));
    write(renderer_->text(refused));
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
  int finish(int code) const { return html_.finish(code); }

 private:
  // At once: who reads a pipe of a long gate sees each row when it is there.
  void write(const std::string& text) const {
    if (results_.take_standard_output()) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  std::unique_ptr<report::Renderer> renderer_;
  ResultFiles& results_;
  HtmlFile html_;
  std::string command_;
};

}  // namespace gradledger::tool
