#include "tools/gradledger/resume_file.h"

#include <system_error>

#include <nlohmann/json.hpp>

#include "report/version/version.h"
#include "search/shrink/shape.h"
#include "sim/base/files.h"
#include "verbs/new_file.h"

namespace gradledger::tool {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int schema_version = 1;

// The counters by their names in the file.
template <class Counts, class Visit>
void each_count(Counts& counts, Visit&& visit) {
  visit("cases", counts.cases);
  visit("events", counts.events);
  visit("rank_events", counts.rank_events);
  visit("operations", counts.operations);
  visit("compared", counts.compared);
  visit("suspicious", counts.suspicious);
  visit("judged", counts.judged);
  visit("reruns", counts.reruns);
  visit("not_run", counts.not_run);
}

ordered_json to_json(const search::Checkpoint& checkpoint) {
  ordered_json out;
  out["next"] = checkpoint.next;
  each_count(checkpoint.counts, [&](const char* name, std::uint64_t count) { out[name] = count; });
  if (checkpoint.counts.nondeterminism) out["nondeterminism"] = *checkpoint.counts.nondeterminism;
  out["alike"] = checkpoint.alike;
  out["shrunk"] = checkpoint.shrunk;
  out["broken"] = checkpoint.broken;
  return out;
}

// Throws what the library throws where something is not there or of another type.
search::Checkpoint checkpoint_from(const json& in) {
  search::Checkpoint out;
  in.at("next").get_to(out.next);
  each_count(out.counts, [&](const char* name, std::uint64_t& count) { in.at(name).get_to(count); });
  if (in.contains("nondeterminism")) out.counts.nondeterminism = in["nondeterminism"].get<std::string>();
  in.at("alike").get_to(out.alike);
  in.at("shrunk").get_to(out.shrunk);
  in.at("broken").get_to(out.broken);
  return out;
}

}  // namespace

ResumeFile::ResumeFile(const fs::path& folder, std::string campaign) : path_(folder / (".gradledger-campaign-" + search::short_hash(campaign))), campaign_(std::move(campaign)) {}

Result<std::optional<search::Checkpoint>> ResumeFile::read() const {
  std::error_code failed;
  if (!fs::exists(path_, failed)) return std::optional<search::Checkpoint>();
  const auto text = read_file(path_);
  if (!text) return InputError{"--resume", text.error().text()};
  try {
    const json in = json::parse(*text);
    if (in.at("schema_version") != schema_version || in.at("version") != report::version_text())
      return InputError{"--resume", path_.string() + " was written by another version, which may draw other cases; expected one of " + report::version_text() +
                                        ", or a campaign without --resume"};
    if (in.at("campaign") != campaign_) return InputError{"--resume", path_.string() + " is of another campaign; remove it to begin anew"};
    return std::optional(checkpoint_from(in.at("checkpoint")));
  } catch (const json::exception&) {
    return InputError{"--resume", path_.string() + " is damaged; remove it to begin anew"};
  }
}

std::optional<InputError> ResumeFile::write(const search::Checkpoint& checkpoint) const {
  std::error_code failed;
  fs::create_directories(path_.parent_path(), failed);
  const ordered_json out{{"schema_version", schema_version}, {"version", report::version_text()}, {"campaign", campaign_}, {"checkpoint", to_json(checkpoint)}};
  const auto written = verbs::replace_file(path_, out.dump() + "\n");
  if (!written) return written.error();
  return std::nullopt;
}

void ResumeFile::remove() const {
  std::error_code failed;
  fs::remove(path_, failed);
}

}  // namespace gradledger::tool
