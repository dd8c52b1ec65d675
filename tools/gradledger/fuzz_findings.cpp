// Findings that were saved, and those that are.
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "search/shrink/shape.h"
#include "sim/base/files.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/positions.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/findings_folder.h"
#include "tools/gradledger/fuzz.h"
#include "tools/gradledger/verbs.h"
#include "verbs/findings.h"
#include "verbs/new_file.h"

namespace gradledger::tool {
namespace fs = std::filesystem;
namespace {

// Half a file, as a full disk or a crash leaves it: it gets out of the way, and the campaign goes on without it.
InputError set_damaged_aside(const fs::path& file, const std::string& text) {
  const InputError why = read_json(text).error();
  const auto moved = verbs::set_aside(file, ".damaged");
  return {place_in(file, text, why.where), why.message + "; " + (moved ? "set aside as " + moved->string() : moved.error().message)};
}

// As the campaign's own state of the code has it.
void show(Saved& saved, Scenario scenario, const search::CampaignOptions& campaign) {
  const std::vector<ExpectedFinding> expected = scenario.expect.findings;
  scenario.expect = {};
  if (scenario.engine.framework == framework_of(campaign.profile).id()) scenario.engine.as_of = campaign.profile.as_of;
  if (!campaign.driver) {
    if (const auto error = admission_error(scenario)) saved.not_taken = error->text();
  }
  for (const ExpectedFinding& e : expected) {
    if (!saved.not_taken.empty()) break;
    try {
      const auto found = search::found_in(scenario, *ref::finding_class_named(e.finding), campaign);
      if (found) saved.shows.push_back(*found);
      else saved.gone.push_back(e.finding);
    } catch (const driver::NotRun& error) {
      saved.not_taken = error.what();
    }
  }
}

}  // namespace

Replayed replay_saved(const fs::path& file, const Options& options, const search::CampaignOptions& campaign) {
  Replayed out;
  out.saved.path = file;
  const auto refuse = [&](const InputError& error) {
    out.complaint = error;
    out.code = error.unavailable ? unavailable : bad_input;
    return out;
  };
  const auto text = read_file(file);
  if (!text) return refuse(text.error());
  if (!nlohmann::json::accept(*text)) {
    out.complaint = set_damaged_aside(file, *text);
    return out;
  }
  try {
    const auto loaded = load(file, options, Use::search);
    if (!loaded) return refuse(loaded.error());
    if (auto error = not_searched(**loaded)) return refuse(*error);
    show(out.saved, (*loaded)->scenario, campaign);
  } catch (const driver::NotRun& error) {  // a real framework that is another's, or has no such release
    out.saved.not_taken = error.what();
  }
  return out;
}

std::vector<report::FoundRow> rows_of(const Saved& saved, std::uint64_t seed) {
  std::vector<report::FoundRow> out;
  for (const search::Found& f : saved.shows) out.push_back(found_row(f, "still there", saved.path.string(), seed));
  for (const std::string& gone : saved.gone) {
    report::FoundRow row{.status = "gone", .finding = gone};
    row.file = saved.path.string();
    out.push_back(std::move(row));
  }
  if (!saved.not_taken.empty()) {
    report::FoundRow row{.status = "not taken"};
    row.sentence = saved.not_taken;
    row.file = saved.path.string();
    out.push_back(std::move(row));
  }
  return out;
}

report::FoundRow found_row(const search::Found& found, const std::string& status, const std::string& file, std::uint64_t seed) {
  report::FoundRow out{status, found.finding, found.engine, found.shape, found.events, found.minimal, found.number, found.alike, found.blame, found.sentence, file, found.scenario};
  out.seed = seed;
  if (!found.detail) return out;
  std::vector<report::Finding> detail{{*found.detail, found.pointer, {}, "", found.alike}};
  if (!file.empty()) verbs::locate(file, detail);
  out.detail = std::move(detail.front());
  return out;
}

Result<FindingsFolder::Kept> save(const search::Found& found, FindingsFolder& folder, const Options& options, const FuzzOptions& fuzz) {
  Scenario scenario = found.scenario;
  scenario.note = fmt::format("Found by gradledger fuzz{}, case {}: {} Draw it again: gradledger fuzz{} --case {}", drawn_by(options, fuzz), found.number, found.sentence,
                              drawn_by(options, fuzz), found.number);
  return folder.keep(scenario, [&](const Scenario& there) {
    const bool expects_it = std::any_of(there.expect.findings.begin(), there.expect.findings.end(), [&](const ExpectedFinding& e) { return e.finding == found.finding; });
    return expects_it && there.engine.as_of == scenario.engine.as_of && search::engine_of(there) == found.engine && search::is_part_of(there.script, scenario.script);
  });
}

}  // namespace gradledger::tool
