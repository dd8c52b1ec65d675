#include "tools/gradledger/fuzz.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "search/campaign/canary.h"
#include "sim/scenario/parse.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/report.h"
#include "tools/gradledger/verbs.h"
#include "report/version/version.h"

namespace gradledger::tool {
namespace {

using nlohmann::ordered_json;

// On a terminal alone, and on its last line.
class Progress {
 public:
  void show(const search::CampaignState& s) const {
    if (!terminal_) return;
    fmt::print(stderr, "\r\033[K{} cases, {} findings, {:.0f} cases/s", s.cases, s.found.size(), static_cast<double>(s.cases) / seconds());
    std::fflush(stderr);
  }
  void clear() const {
    if (terminal_) fmt::print(stderr, "\r\033[K");
  }
  double seconds() const { return std::max(std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(), 1.0 / 1024); }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

struct Report {
  std::vector<Saved> saved;
  search::CampaignState state;
  std::map<const search::Found*, std::filesystem::path> written;
  std::optional<InputError> not_written;  // why a finding has no file
  std::optional<std::uint32_t> canary;    // cases until it was found
  double seconds = 0;
};

ordered_json finding_json(const search::Found& f, const std::string& status, const std::string& file) {
  return {{"record", "finding"}, {"status", status}, {"class", f.finding},   {"engine", f.engine},     {"shape", f.shape}, {"events", f.events}, {"minimal", f.minimal},
          {"case", f.number},    {"alike", f.alike}, {"blame", blame_json(f.blame)}, {"sentence", f.sentence}, {"file", file}};
}

void print_json(const Report& r, const Options& options, const FuzzOptions& fuzz) {
  const auto line = [](const ordered_json& json) { fmt::print("{}\n", json.dump(-1, ' ', false, ordered_json::error_handler_t::replace)); };
  for (const Saved& saved : r.saved) {
    for (const search::Found& f : saved.shows) line(finding_json(f, "still there", saved.path.string()));
    for (const std::string& gone : saved.gone) line({{"record", "finding"}, {"status", "gone"}, {"class", gone}, {"file", saved.path.string()}});
  }
  for (const auto& [found, path] : r.written) line(finding_json(*found, "new", path.string()));
  for (const search::Broken& b : r.state.broken) line({{"record", "internal error"}, {"case", b.number}, {"what", b.what}, {"scenario", to_json(b.scenario)}});
  const search::CampaignState& s = r.state;
  line({{"record", "summary"}, {"schema_version", 1}, {"tool", tool_json()}, {"command", repeat_command(options, fuzz)}, {"shard", fuzz.shard}, {"cases", s.cases}, {"events", s.events},
        {"rank_events", s.rank_events}, {"operations", s.operations}, {"compared", s.compared}, {"suspicious", s.suspicious}, {"judged", s.judged}, {"reruns", s.reruns},
        {"canary_cases", r.canary ? ordered_json(*r.canary) : ordered_json()}, {"nondeterminism", s.nondeterminism.value_or("")}, {"seconds", r.seconds}});
}

void print_text(const Report& r, const Options& options, const FuzzOptions& fuzz) {
  fmt::print("# {}\n", repeat_command(options, fuzz));
  for (const Saved& saved : r.saved) {
    for (const search::Found& f : saved.shows) fmt::print("still there  {:20}  {:14}  {}{}\n             {}\n", f.finding, f.engine, f.shape, usage_mark(f.blame), saved.path.string());
    for (const std::string& gone : saved.gone) fmt::print("gone         {:20}  {}\n", gone, saved.path.string());
  }
  for (const auto& [f, path] : r.written) fmt::print("new          {:20}  {:14}  {}{}\n             {}\n             {}\n", f->finding, f->engine, f->shape, usage_mark(f->blame), f->sentence,
                                                            path.empty() ? "not written" : path.string());
  const search::CampaignState& s = r.state;
  for (const search::Broken& b : s.broken) fmt::print("internal error in case {}: {}\n  draw it again: gradledger fuzz{} --case {}\n", b.number, b.what, drawn_by(options, fuzz), b.number);
  if (s.nondeterminism) fmt::print("not deterministic: {}\n", *s.nondeterminism);
  fmt::print("{} cases, {} events on {} rank-events, {} elements compared; {} looked wrong, {} went before the oracle, {} ran twice alike\n", s.cases, s.events, s.rank_events, s.compared,
             s.suspicious, s.judged, s.reruns);
  if (r.canary) fmt::print("canary: the fault that must be found was, after {} case{}\n", *r.canary, *r.canary == 1 ? "" : "s");
  else fmt::print("canary: the fault that must be found was NOT; what this campaign says means nothing\n");
  fmt::print("{:.1f} s, {:.0f} cases a second\n", r.seconds, static_cast<double>(s.cases) / r.seconds);
}

// A campaign that ran nothing proves nothing.
std::optional<InputError> vacuous(const search::CampaignState& s) {
  if (s.cases == 0) return no_case_taken();
  if (s.events == 0 || s.compared == 0) return InputError{"", "the campaign compared nothing; expected a profile whose scripts reach a gradient"};
  return std::nullopt;
}

// A finding that cannot be written is reported all the same.
void write_new(Report& report, std::size_t known, const Options& options, const FuzzOptions& fuzz) {
  for (std::size_t i = known; i < report.state.found.size(); ++i) {
    const auto path = save(report.state.found[i], options, fuzz);
    if (!path) report.not_written = path.error();
    report.written[&report.state.found[i]] = path ? *path : std::filesystem::path();
  }
}

// Those of the state of the code that is searched: what another one shows, this one need not.
std::vector<search::Found> known_here(const std::vector<Saved>& saved, const AsOf& as_of) {
  std::vector<search::Found> out;
  for (const Saved& s : saved)
    std::copy_if(s.shows.begin(), s.shows.end(), std::back_inserter(out), [&](const search::Found& f) { return f.scenario.engine.as_of == as_of; });
  return out;
}

int code_of(const Report& r) {
  if (!r.state.broken.empty() || r.state.nondeterminism || !r.canary) return internal_error;
  const bool still = std::any_of(r.saved.begin(), r.saved.end(), [](const Saved& saved) { return !saved.shows.empty(); });
  return still || !r.written.empty() ? findings : clean;
}

}  // namespace

int fuzz(const Options& options, const FuzzOptions& fuzz) {
  auto campaign = campaign_options(options, fuzz);
  const auto refuse = [](const InputError& error) {
    complain(error);
    return error.unavailable ? unavailable : bad_input;
  };
  if (!campaign) return refuse(campaign.error());
  if (!fuzz.catalogue.empty()) return fuzz_catalogue(options, fuzz);
  if (const auto error = refusal_of_folder(fuzz)) return refuse(*error);
  if (!fuzz.differ.empty()) return fuzz_differ(options, fuzz);
  Report report;
  const Progress progress;
  auto saved = replay_saved(options, fuzz);
  if (!saved) return refuse(saved.error());
  report.saved = std::move(saved).value();
  report.canary = search::cases_until_canary(options.seed);
  search::CampaignOptions how = std::move(campaign).value();
  how.progress = [&](const search::CampaignState& s) { progress.show(s); };
  const std::vector<search::Found> known = known_here(report.saved, how.profile.as_of);
  report.state = search::run_campaign(how, known);
  progress.clear();
  report.seconds = progress.seconds();
  if (const auto error = vacuous(report.state)) return refuse(*error);
  write_new(report, known.size(), options, fuzz);
  if (options.json) print_json(report, options, fuzz);
  else print_text(report, options, fuzz);
  return report.not_written ? refuse(*report.not_written) : code_of(report);
}

}  // namespace gradledger::tool
