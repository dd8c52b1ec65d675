#include "verbs/findings.h"

#include "sim/base/files.h"
#include "sim/scenario/positions.h"
#include "verbs/command.h"

namespace gradledger::verbs {

std::vector<report::Finding> findings_of(const Loaded& loaded, const Options& options, const std::vector<ref::Finding>& findings) {
  const Timeline& timeline = loaded.timeline;
  std::vector<report::Finding> out;
  for (const ref::Finding& f : findings) out.push_back({f, timeline.pointers[timeline.events[f.event].item], {}, race_command(loaded.path, options, f)});
  locate(loaded.path, out);
  return out;
}

void locate(const std::filesystem::path& file, std::vector<report::Finding>& findings) {
  const auto text = findings.empty() ? Result<std::string>("") : read_file(file);
  if (!text) return;
  std::vector<std::string> pointers;
  for (const report::Finding& f : findings) pointers.push_back(f.pointer);
  const std::vector<Position> places = positions_of(*text, pointers);
  for (std::size_t i = 0; i < findings.size(); ++i) findings[i].at = places[i];
}

std::vector<std::string> parameter_names(const Scenario& scenario) {
  std::vector<std::string> out;
  for (const Parameter& p : scenario.parameters) out.push_back(p.name);
  return out;
}

}  // namespace gradledger::verbs
