// The file of --html: collects what a command prints, and writes the page at its end.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "report/html/html.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/verbs.h"
#include "verbs/new_file.h"

namespace gradledger::tool {

class HtmlFile {
 public:
  // Of an empty path, nothing is collected and nothing written.
  explicit HtmlFile(std::string path) : path_(std::move(path)) {}

  template <class Value>
  void add(const Value& value) const {
    if (path_.empty()) return;
    if (std::string part = report::Html().text(value); !part.empty()) parts_.push_back(std::move(part));
  }

  // A command that broke off before it had anything to show writes no page.
  int finish(int code) const {
    if (path_.empty() || parts_.empty()) return code;
    const auto error = verbs::replace_or_write(path_, report::html_page("gradledger report", parts_));
    if (!error) return code;
    complain({"--html", path_ + " " + error->message});
    return std::max<int>(code, bad_input);
  }

 private:
  std::string path_;
  mutable std::vector<std::string> parts_;
};

}  // namespace gradledger::tool
