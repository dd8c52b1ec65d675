// What parts of a page have in common.
#pragma once

#include <string>
#include <vector>

#include "report/json_parts.h"
#include "report/lanes.h"
#include "report/report.h"
#include "sim/accounting.h"

namespace gradledger::report {

// A table that a reader sorts out by words and by status. Rows of tables with one title that follow each other become one table.
class TablePart {
 public:
  TablePart(const std::string& title, const std::vector<std::string>& columns) {
    json_ = {{"kind", "table"}, {"title", title}, {"columns", columns}, {"rows", ordered_json::array()}};
  }

  // status: "right", "wrong" or "open". details are shown when the row is opened.
  void row(const char* status, const std::string& word, const std::vector<std::string>& cells, const std::vector<std::string>& details = {}) {
    json_["rows"].push_back({{"status", status}, {"word", word}, {"cells", cells}, {"details", details}});
  }
  void command(const std::string& text) { json_["command"] = text; }
  void say(const std::string& sentence) { json_["sentences"].push_back(sentence); }
  std::string text() const { return json_line(json_); }

 private:
  ordered_json json_;
};

ordered_json lanes_part(const Lanes& lanes);
ordered_json accounting_part(const Accounting& accounting);

}  // namespace gradledger::report
