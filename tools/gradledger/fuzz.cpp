#include "tools/gradledger/fuzz.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "search/campaign/canary.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/output.h"
#include "tools/gradledger/verbs.h"

namespace gradledger::tool {
namespace {

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
  std::map<std::size_t, std::filesystem::path> written;  // by number in the state
  std::optional<InputError> not_written;                 // why a finding has no file
  std::optional<std::uint32_t> canary;                   // cases until it was found
  double seconds = 0;
};

report::FuzzReport report_of(const Report& r, const Options& options, const FuzzOptions& fuzz) {
  report::FuzzReport out;
  out.command = repeat_command(options, fuzz);
  out.shard = fuzz.shard;
  for (const Saved& saved : r.saved) {
    for (const search::Found& f : saved.shows) out.found.push_back(found_row(f, "still there", saved.path.string()));
    for (const std::string& gone : saved.gone) {
      report::FoundRow row{.status = "gone", .finding = gone};
      row.file = saved.path.string();
      out.found.push_back(std::move(row));
    }
  }
  const search::CampaignState& s = r.state;
  for (const auto& [number, path] : r.written) out.found.push_back(found_row(s.found[number], "new", path.string()));
  for (const search::Broken& b : s.broken) out.broken.push_back({b.number, b.what, fmt::format("gradledger fuzz{} --case {}", drawn_by(options, fuzz), b.number), b.scenario});
  out.cases = s.cases;
  out.events = s.events;
  out.rank_events = s.rank_events;
  out.operations = s.operations;
  out.compared = s.compared;
  out.suspicious = s.suspicious;
  out.judged = s.judged;
  out.reruns = s.reruns;
  out.not_run = s.not_run;
  out.nondeterminism = s.nondeterminism;
  out.canary = r.canary;
  out.seconds = r.seconds;
  return out;
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
    report.written[i] = path ? *path : std::filesystem::path();
  }
}

// Those of the state of the code that is searched: what another one shows, this one need not.
std::vector<search::Found> known_here(const std::vector<Saved>& saved, const AsOf& as_of) {
  std::vector<search::Found> out;
  for (const Saved& s : saved) std::copy_if(s.shows.begin(), s.shows.end(), std::back_inserter(out), [&](const search::Found& f) { return f.scenario.engine.as_of == as_of; });
  return out;
}

int code_of(const Report& r) {
  if (!r.state.broken.empty() || r.state.nondeterminism || !r.canary) return internal_error;
  const bool still = std::any_of(r.saved.begin(), r.saved.end(), [](const Saved& saved) { return !saved.shows.empty(); });
  return still || !r.written.empty() ? findings : clean;
}

}  // namespace

int fuzz(const Options& options, const FuzzOptions& fuzz, const Output& out) {
  auto campaign = campaign_options(options, fuzz);
  const auto refuse = [](const InputError& error) {
    complain(error);
    return error.unavailable ? unavailable : bad_input;
  };
  if (!campaign) return refuse(campaign.error());
  if (!fuzz.catalogue.empty()) return fuzz_catalogue(options, fuzz, out);
  if (const auto error = refusal_of_folder(fuzz)) return refuse(*error);
  if (!fuzz.differ.empty()) return fuzz_differ(options, fuzz, out);
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
  out.print(report_of(report, options, fuzz));
  return report.not_written ? refuse(*report.not_written) : code_of(report);
}

}  // namespace gradledger::tool
