// JUnit's XML: the elements and attributes that Jenkins' schema has.
#include <sstream>

#include <fmt/format.h>
#include <pugixml.hpp>

#include "report/escape.h"
#include "report/results.h"
#include "report/words.h"

namespace gradledger::report {
namespace {

void set(pugi::xml_node node, const char* name, std::string_view value) { node.append_attribute(name).set_value(printable_text(value).c_str()); }

void set(pugi::xml_node node, const char* name, std::size_t value) { node.append_attribute(name).set_value(std::to_string(value).c_str()); }

void set_seconds(pugi::xml_node node, double seconds) { node.append_attribute("time").set_value(fmt::format("{:.3f}", seconds).c_str()); }

void add_text(pugi::xml_node node, const std::string& text) { node.append_child(pugi::node_pcdata).set_value(printable_text(text).c_str()); }

void add_counts(pugi::xml_node node, const Results& results) {
  set(node, "tests", results.cases.size());
  set(node, "failures", results.count(Status::failed));
  set(node, "errors", results.count(Status::error));
}

void add_property(pugi::xml_node properties, const char* name, const std::string& value) {
  pugi::xml_node property = properties.append_child("property");
  set(property, "name", name);
  set(property, "value", value);
}

// "scenarios.open-instruct-1498": readers make folders of it.
std::string class_of(const CaseResult& result) {
  const std::size_t slash = result.file.rfind('/');
  std::string out = slash == std::string::npos ? "" : result.file.substr(0, slash);
  out.erase(0, out.find_first_not_of("./"));
  for (char& c : out)
    if (c == '/') c = '.';
  return out.empty() ? "gradledger" : out;
}

std::string problem_lines(const CaseResult& result) {
  std::string out;
  for (const Problem& problem : result.problems) out += place_before(result.file, problem) + problem.text + "\n";
  return out;
}

void add_outcome(pugi::xml_node testcase, const CaseResult& result) {
  if (result.status == Status::passed) return;
  if (result.status == Status::not_run) return set(testcase.append_child("skipped"), "message", result.why);
  const bool failed = result.status == Status::failed;
  pugi::xml_node outcome = testcase.append_child(failed ? "failure" : "error");
  const bool has_problem = !result.problems.empty();
  set(outcome, "message", failed && has_problem ? result.problems.front().text : result.why);
  set(outcome, "type", has_problem ? result.problems.front().rule : "broken-run");
  add_text(outcome, failed ? problem_lines(result) : result.why);
}

void add_case(pugi::xml_node suite, const CaseResult& result) {
  pugi::xml_node testcase = suite.append_child("testcase");
  set(testcase, "name", result.name);
  set(testcase, "classname", class_of(result));
  set_seconds(testcase, result.seconds);
  add_outcome(testcase, result);
  std::string about;
  for (const auto& [name, value] : {std::pair{"file", &result.file}, std::pair{"engine", &result.engine}, std::pair{"as of", &result.as_of},
                                    std::pair{"producer", &result.producer}, std::pair{"repeat with", &result.command}})
    if (!value->empty()) about += fmt::format("{}: {}\n", name, *value);
  if (!about.empty()) add_text(testcase.append_child("system-out"), about);
}

}  // namespace

std::string junit(const Results& results) {
  pugi::xml_document document;
  pugi::xml_node declaration = document.append_child(pugi::node_declaration);
  declaration.append_attribute("version") = "1.0";
  declaration.append_attribute("encoding") = "UTF-8";
  pugi::xml_node suites = document.append_child("testsuites");
  set(suites, "name", "gradledger");
  add_counts(suites, results);
  set_seconds(suites, results.seconds());
  pugi::xml_node suite = suites.append_child("testsuite");
  set(suite, "name", "gradledger " + results.verb);
  add_counts(suite, results);
  set(suite, "skipped", results.count(Status::not_run));
  set_seconds(suite, results.seconds());
  pugi::xml_node properties = suite.append_child("properties");
  add_property(properties, "gradledger", fmt::format("{} ({})", results.tool.number, results.tool.commit));
  add_property(properties, "command", results.command);
  add_property(properties, "seed", std::to_string(results.seed));
  add_property(properties, "producer", results.producer);
  for (const CaseResult& result : results.cases) add_case(suite, result);
  std::ostringstream out;
  document.save(out, "  ");
  return out.str();
}

}  // namespace gradledger::report
