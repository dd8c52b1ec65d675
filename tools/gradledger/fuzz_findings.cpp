#include <unistd.h>

#include <system_error>

#include <fmt/format.h>

#include "sim/base/files.h"
#include "sim/scenario/parse.h"
#include "tools/gradledger/fuzz.h"
#include "verbs/scenario_files.h"

namespace gradledger::tool {
namespace fs = std::filesystem;
namespace {

fs::path file_of(const Scenario& scenario, const FuzzOptions& fuzz) { return fs::path(fuzz.findings) / (scenario.name + ".json"); }

}  // namespace

Result<std::vector<Saved>> replay_saved(const Options& options, const FuzzOptions& fuzz) {
  std::vector<Saved> out;
  std::error_code missing;
  if (!fs::is_directory(fuzz.findings, missing) || fs::is_empty(fuzz.findings, missing)) return out;
  const auto files = verbs::scenario_files({fuzz.findings});
  if (!files) return InputError{"--findings", files.error().text()};
  search::CampaignOptions campaign;
  campaign.seed = options.seed;
  campaign.devices = options.devices;
  for (const fs::path& file : *files) {
    const auto loaded = load(file, options);
    if (!loaded) return loaded.error();
    if (auto error = not_searched((*loaded)->scenario, file.string())) return *error;
    Saved saved{file, {}, {}};
    for (const ExpectedFinding& expected : (*loaded)->scenario.expect.findings) {
      Scenario plain = (*loaded)->scenario;
      plain.expect = {};
      const auto found = search::found_in(plain, *ref::finding_class_named(expected.finding), campaign);
      if (found) saved.shows.push_back(*found);
      else saved.gone.push_back(expected.finding);
    }
    out.push_back(std::move(saved));
  }
  return out;
}

report::FoundRow found_row(const search::Found& found, const std::string& status, const std::string& file) {
  return {status, found.finding, found.engine, found.shape, found.events, found.minimal, found.number, found.alike, found.blame, found.sentence, file, found.scenario};
}

Result<fs::path> save(const search::Found& found, const Options& options, const FuzzOptions& fuzz) {
  Scenario scenario = found.scenario;
  scenario.note = fmt::format("Found by gradledger fuzz{}, case {}: {} Draw it again: gradledger fuzz{} --case {}", drawn_by(options, fuzz), found.number, found.sentence,
                              drawn_by(options, fuzz), found.number);
  std::error_code failed;
  const std::string name = scenario.name;
  for (int number = 2; fs::exists(file_of(scenario, fuzz), failed); ++number) scenario.name = fmt::format("{}-{}", name, number);
  return write_scenario(scenario, fuzz);
}

Result<fs::path> write_scenario(const Scenario& scenario, const FuzzOptions& fuzz) {
  const fs::path path = file_of(scenario, fuzz);
  std::error_code failed;
  fs::create_directories(fuzz.findings, failed);
  if (const auto error = write_file(path, serialise(scenario))) return InputError{"--findings", path.string() + " " + error->message};
  return path;
}

std::optional<InputError> refusal_of_folder(const FuzzOptions& fuzz) {
  std::error_code failed;
  fs::path at = fs::absolute(fuzz.findings, failed).lexically_normal();
  while (!fs::exists(at, failed) && at.has_relative_path()) at = at.parent_path();
  if (!fs::is_directory(at, failed)) return InputError{"--findings", fuzz.findings + " is or lies in a file; expected a folder"};
  if (access(at.c_str(), W_OK | X_OK) != 0) return InputError{"--findings", fuzz.findings + " cannot be written to; expected a folder that can"};
  return std::nullopt;
}

}  // namespace gradledger::tool
