// gradledger fuzz: its options and the parts that the verb is made of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/searches.h"
#include "search/campaign/campaign.h"
#include "tools/gradledger/options.h"

namespace gradledger::tool {

class Output;

inline constexpr std::string_view findings_default = "findings";
inline constexpr std::uint64_t cases_default = 20'000;
inline constexpr std::uint64_t cases_default_driver = 100;  // of a real framework, which takes a thousand times as long

struct FuzzOptions {
  std::optional<std::uint64_t> cases;  // absent: as many as --time has room for, or 20 000
  std::optional<std::uint64_t> time_s;
  std::optional<std::uint64_t> only;  // one case, by its number
  std::vector<std::string> engines;   // variants; empty: all
  std::string as_of = "head";
  std::vector<std::string> switches;  // "name=value", on top of as_of
  std::string shard = "0/1";
  std::uint32_t jobs = 1;
  std::string findings{findings_default};  // folder
  bool any_script = false;                 // also those that leave the documentation
  std::string differ;                      // sides, comma-separated
  std::string catalogue;                   // folder of scenarios whose defects are looked for
};

// The campaign that the options ask for. Errors name the option.
Result<search::CampaignOptions> campaign_options(const Options& options, const FuzzOptions& fuzz);

// The engines that --engine names. Errors: one that there is not, or engines of two frameworks.
Result<std::vector<const search::Variant*>> variants_from(const std::vector<std::string>& names);

// A state of the framework's code as --as-of and --switch give it.
// Of a real framework: what is installed. Errors: it is not the framework that is drawn, or options that choose another state of the code.
Result<AsOf> as_of_installed(const Framework& framework, driver::DriverRanks& driver, const std::string& base, const std::vector<std::string>& switches);
Result<AsOf> as_of_from(const Framework& framework, const std::string& base, const std::vector<std::string>& switches);

std::vector<std::string> comma_separated(const std::string& text);

// The options that a command needs to draw the same cases: " --seed 1 --engine zero2 --as-of 0.18.9".
std::string drawn_by(const Options& options, const FuzzOptions& fuzz);

// The command that repeats the run.
std::string repeat_command(const Options& options, const FuzzOptions& fuzz);

// ---- findings that were saved ------------------------------------------------------------------------------------------------------

struct Saved {
  std::filesystem::path path;
  std::vector<search::Found> shows;  // of the classes that it expects
  std::vector<std::string> gone;     // classes that it no longer shows
};

// Every scenario of the folder, judged again; none where there is no such folder. Errors: a file that is no scenario.
Result<std::vector<Saved>> replay_saved(const Options& options, const FuzzOptions& fuzz);

// Writes a finding, named after its class, engine and shape, and numbered where that name is taken; the path that it has. Errors: it
// cannot be written.
Result<std::filesystem::path> save(const search::Found& found, const Options& options, const FuzzOptions& fuzz);

// Writes a scenario into the folder, as the file of its name. Errors: it cannot be written.
Result<std::filesystem::path> write_scenario(const Scenario& scenario, const FuzzOptions& fuzz);

// A finding of a search as the reports have it. Status and file are a campaign's.
report::FoundRow found_row(const search::Found& found, const std::string& status = "", const std::string& file = "");

// Of a shard that has nothing to do.
InputError no_case_taken();

// What stands in the way of writing into the folder, found out before anything is searched and without making it.
std::optional<InputError> refusal_of_folder(const FuzzOptions& fuzz);

// ---- the other ways to search ------------------------------------------------------------------------------------------------------

int fuzz_differ(const Options& options, const FuzzOptions& fuzz, const Output& out);
int fuzz_catalogue(const Options& options, const FuzzOptions& fuzz, const Output& out);

}  // namespace gradledger::tool
