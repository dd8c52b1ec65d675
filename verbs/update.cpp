#include "verbs/update.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "sim/base/files.h"
#include "sim/load.h"
#include "verbs/json_text.h"

namespace gradledger::verbs {
namespace {

// Whether what the file says of one class, all of it, is what was reported.
bool holds(const Loaded& loaded, const Held& held, const std::string& finding) {
  Loaded of_class = loaded;
  const auto of_another = [&](const std::string& name) { return name != finding; };
  of_class.scenario.expect = {};
  for (const ExpectedFinding& e : loaded.scenario.expect.findings)
    if (!of_another(e.finding)) of_class.scenario.expect.findings.push_back(e);
  ref::Verdict verdict = held.verdict;
  std::erase_if(verdict.findings, [&](const ref::Finding& f) { return of_another(std::string(name_of(f.finding))); });
  return unmet(of_class, verdict).empty();
}

struct Wanted {
  std::vector<std::size_t> kept;     // numbers of what the file expects now
  std::vector<std::string> classes;  // that are expected without more
};

Wanted wanted(const Loaded& loaded, const Held& held) {
  std::set<std::string> reported, kept;
  for (const ref::Finding& f : held.verdict.findings) reported.insert(std::string(name_of(f.finding)));
  Wanted out;
  const std::vector<ExpectedFinding>& expected = loaded.scenario.expect.findings;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!reported.contains(expected[i].finding) || !holds(loaded, held, expected[i].finding)) continue;
    out.kept.push_back(i);
    kept.insert(expected[i].finding);
  }
  std::set_difference(reported.begin(), reported.end(), kept.begin(), kept.end(), std::back_inserter(out.classes));
  return out;
}

std::string changed(const std::string& text, const Wanted& wanted) {
  const TextRange root = root_of(text);
  const auto expect = member_of(text, root, "expect");
  const auto findings = expect ? member_of(text, *expect, "findings") : std::nullopt;
  std::vector<std::string> elements;
  if (findings) {
    const std::vector<TextRange> old = elements_of(text, *findings);
    for (const std::size_t i : wanted.kept) elements.push_back(text.substr(old.at(i).begin, old.at(i).end - old.at(i).begin));
  }
  for (const std::string& name : wanted.classes) elements.push_back("{\"class\": " + nlohmann::json(name).dump() + "}");
  if (findings) return with_elements(text, *findings, elements);
  const std::string array = with_elements("[]", {0, 2}, elements);
  return expect ? with_member(text, *expect, "findings", array) : with_member(text, root, "expect", "{\"findings\": " + array + "}");
}

}  // namespace

Result<std::string> updated_text(const Loaded& loaded, const Held& held) {
  const auto text = read_file(loaded.path);
  if (!text) return text.error();
  const Wanted all = wanted(loaded, held);
  const std::string out = changed(*text, all);
  Scenario meant = loaded.scenario;
  meant.expect.findings.clear();
  for (const std::size_t i : all.kept) meant.expect.findings.push_back(loaded.scenario.expect.findings[i]);
  for (const std::string& name : all.classes) meant.expect.findings.emplace_back().finding = name;
  const auto read = read_scenario(out, loaded.path.parent_path());
  if (!read || !(*read == meant)) return InputError{loaded.path.string() + ": /expect/findings", "cannot be changed where it stands; expected an array of findings"};
  return out;
}

}  // namespace gradledger::verbs
