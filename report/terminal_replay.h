// The parts of a replay's report for people: terminal.cpp has the verdict, the files beside it what that rests on.
#pragma once

#include <string>

#include <fmt/format.h>

#include "report/format.h"

namespace gradledger::report {

class Paint {
 public:
  explicit Paint(bool colour) : colour_(colour) {}
  std::string wrong(const std::string& text) const { return wrap("31;1", text); }
  std::string right(const std::string& text) const { return wrap("32", text); }
  std::string faint(const std::string& text) const { return wrap("2", text); }

 private:
  std::string wrap(const char* code, const std::string& text) const { return colour_ ? fmt::format("\033[{}m{}\033[0m", code, text) : text; }
  bool colour_;
};

// The ledger of the gradients that were applied, wrong cells marked. Steps that are alike have one table, and ranks that are alike one row.
std::string ledger_tables(const Report& report, const Style& style);

// What each rank held and sent in each event; ranks that are alike have one line.
std::string event_lines(const Report& report, const Style& style);

}  // namespace gradledger::report
