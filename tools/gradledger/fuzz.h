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
#include "tools/gradledger/findings_folder.h"
#include "tools/gradledger/options.h"

namespace gradledger::tool {

class Output;

inline constexpr std::string_view findings_default = "findings";
inline constexpr std::string_view differ_folder = "differ";  // in the folder of findings, of those that tell two sides apart
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
  bool resume = false;                     // go on where the last campaign of the kind was ended
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
  std::vector<search::Found> shows;  // of the classes that it expects, as of the campaign's state of the code
  std::vector<std::string> gone;     // classes that it does not show there
  std::string not_taken;             // why the framework, as of there, does not take it
};

struct Replayed {
  Saved saved;
  std::optional<InputError> complaint;  // about a file that is no scenario, or could not be read; one that is no JSON is set aside
  int code = 0;                         // that it gives the campaign, which goes on
};

// One file of the folder, judged again.
Replayed replay_saved(const std::filesystem::path& file, const Options& options, const search::CampaignOptions& campaign);
std::vector<report::FoundRow> rows_of(const Saved& saved, std::uint64_t seed);

// Writes a finding, named after its class, engine and shape. One of which a part is there already is not written again. Errors: it cannot be
// written.
Result<FindingsFolder::Kept> save(const search::Found& found, FindingsFolder& folder, const Options& options, const FuzzOptions& fuzz);

// A finding of a search as the reports have it. Status and file are a campaign's.
report::FoundRow found_row(const search::Found& found, const std::string& status, const std::string& file, std::uint64_t seed);

// Of a shard that has nothing to do.
std::optional<InputError> no_case_taken(const search::CampaignOptions& campaign);

// ---- the other ways to search ------------------------------------------------------------------------------------------------------

int fuzz_differ(const Options& options, const FuzzOptions& fuzz, const Output& out);
int fuzz_catalogue(const Options& options, const FuzzOptions& fuzz, const Output& out);

}  // namespace gradledger::tool
