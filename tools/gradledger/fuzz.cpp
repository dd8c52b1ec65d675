#include "tools/gradledger/fuzz.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "search/campaign/canary.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/interruption.h"
#include "tools/gradledger/merge.h"
#include "tools/gradledger/output.h"
#include "tools/gradledger/progress.h"
#include "tools/gradledger/resume_file.h"
#include "tools/gradledger/stopwatch.h"
#include "tools/gradledger/verbs.h"

namespace gradledger::tool {
namespace {

report::JudgedRow judged_row(const search::JudgedCase& judged) {
  report::JudgedRow out{judged.number, judged.alike, judged.broken, judged.nondeterministic, {}};
  for (const search::JudgedCase::Shown& shown : judged.shown) out.shown.push_back({shown.finding, shown.scenario, shown.minimal, shown.broken});
  return out;
}

// One campaign: the files of its folder, then its cases. Whatever it finds is in a file and printed before it goes on.
class Run {
 public:
  // shards: other processes ran the cases; null: this one does.
  Run(const Options& options, const FuzzOptions& fuzz, search::CampaignOptions campaign, const Output& out, const ShardsOfCampaign* shards = nullptr)
      : options_(options),
        fuzz_(fuzz),
        campaign_(std::move(campaign)),
        shards_(shards),
        out_(out),
        folder_(fuzz.findings),
        resume_file_(fuzz.findings, drawn_by(options, fuzz) + " --shard " + fuzz.shard) {
    campaign_.stop = [this, over = campaign_.stop] { return Interruption::signal() != 0 || Output::failed() || over(); };
    campaign_.found = [this](const search::Found& found) { keep(found); };
    campaign_.progress = [this](const search::CampaignState& state) { show(state); };
    campaign_.checkpoint = [this](const search::Checkpoint& checkpoint) { note(checkpoint); };
    if (options.shard) campaign_.judged = [this](const search::JudgedCase& judged) { progress_.aside([&] { out_.print(judged_row(judged)); }); };
    report_.command = repeat_command(options, fuzz);
    report_.shard = fuzz.shard;
  }

  int go() {
    if (fuzz_.resume) {
      auto from = resume_file_.read();
      if (!from) return refuse(from.error());
      campaign_.resume = std::move(from).value();
      if (!campaign_.resume) say("--resume: " + fuzz_.findings + " holds no unfinished campaign of these options; this one begins with its first case");
      else report_.cases_before = campaign_.resume->counts.cases;
    }
    // Processes of a launcher have an empty folder each; merge replays the files that were there before.
    if (!options_.of_a_launcher && !fuzz_.findings.empty()) replay_files();
    report_.canary = shards_ ? shards_->canary : search::cases_until_canary(options_.seed);
    const search::CampaignState state = shards_ ? join() : search::run_campaign(campaign_, known_);
    if (!shards_) leave(state);
    if (state.compared == 0 && state.broken.empty() && Interruption::signal() == 0 && !options_.of_a_launcher) return refuse(compared_nothing(state));
    complete(state);
    progress_.aside([&] {
      head();
      out_.print(report_);
      if (shards_) out_.print(merged_);
    });
    if (not_written_) refuse(*not_written_);
    const int code = std::max(not_written_ ? static_cast<int>(bad_input) : code_of(state), shards_ ? shards_->code : clean);
    return Interruption::exit_code_or(code);
  }

 private:
  int refuse(const InputError& error) {
    progress_.aside([&] { complain(error); });
    return error.unavailable ? unavailable : bad_input;
  }

  static InputError compared_nothing(const search::CampaignState& s) {
    if (s.stopped) return {"--time", "was over before anything was compared; expected more seconds"};
    return {"", "the campaign compared nothing; expected a profile whose scripts reach a gradient"};
  }

  search::CampaignState join() {
    search::Joined joined = search::join_campaigns(campaign_, shards_->cases, shards_->together, known_);
    merged_ = shards_->overview;
    for (const auto& [number, finding] : joined.further) merged_.further.push_back({number, finding});
    merged_.made_small = joined.made_small;
    return std::move(joined.state);
  }

  void head() {
    if (!std::exchange(headed_, true)) out_.head(report_.command);
  }

  void announce(report::FoundRow row) {
    progress_.aside([&] {
      head();
      out_.print(row);
    });
    report_.found.push_back(std::move(row));
  }

  void replay_files() {
    const std::vector<std::filesystem::path> files = folder_.scenarios();
    for (std::size_t i = 0; i < files.size() && !campaign_.stop(); ++i) {
      progress_.set(fmt::format("replaying file {} of {}", i + 1, files.size()));
      Replayed replayed = replay_saved(files[i], options_, campaign_);
      if (replayed.complaint) progress_.aside([&] { complain(*replayed.complaint, replayed.code); });
      code_of_files_ = std::max(code_of_files_, replayed.code);
      for (report::FoundRow& row : rows_of(replayed.saved, options_.seed)) announce(std::move(row));
      // What another state of the code shows, this one need not.
      for (search::Found& f : replayed.saved.shows)
        if (f.scenario.engine.as_of == campaign_.profile.as_of) known_.push_back(std::move(f));
    }
    still_there_ = std::any_of(report_.found.begin(), report_.found.end(), [](const report::FoundRow& row) { return row.status == "still there"; });
  }

  // A finding that cannot be written is reported all the same.
  void keep(const search::Found& found) {
    if (fuzz_.findings.empty()) return announce(unwritten(found));
    const auto kept = save(found, folder_, options_, fuzz_);
    if (!kept) not_written_ = kept.error();
    announce(kept ? found_row(found, kept->was_there ? "found again" : "new", kept->path.string(), options_.seed) : unwritten(found));
  }

  report::FoundRow unwritten(const search::Found& found) const {
    report::FoundRow row = found_row(found, "new", "", options_.seed);
    row.again = fmt::format("gradledger fuzz{} --case {}", drawn_by(options_, fuzz_), found.number);
    return row;
  }

  void show(const search::CampaignState& s) {
    progress_.set(fmt::format("{} cases, {} findings, {:.0f} cases/s", s.cases, s.found.size(), static_cast<double>(s.cases - report_.cases_before) / progress_.seconds()));
  }

  // Now and then, for it is on the disk before the campaign goes on.
  void note(const search::Checkpoint& checkpoint) {
    last_ = checkpoint;
    constexpr double seconds_apart = 1;
    if (since_noted_.seconds() < seconds_apart) return;
    since_noted_.lap();
    write_last();
  }

  void write_last() {
    if (!last_ || fuzz_.only || without_resume_) return;
    const auto error = resume_file_.write(*last_);
    if (!error) return;
    without_resume_ = true;
    progress_.aside([&] { say("--resume will find nothing: " + error->text()); });
  }

  void leave(const search::CampaignState& state) {
    if (state.stopped) write_last();
    else if (!fuzz_.only) resume_file_.remove();
  }

  void complete(const search::CampaignState& s) {
    // How many a finding stands for is known at the end.
    for (report::FoundRow& row : report_.found)
      for (const search::Found& f : s.found)
        if (f.finding == row.finding && f.engine == row.engine && f.shape == row.shape && f.number == row.number) row.alike = f.alike;
    for (const search::Broken& b : s.broken)
      report_.broken.push_back({b.number, b.what, fmt::format("gradledger fuzz{} --case {}", drawn_by(options_, fuzz_), b.number), b.scenario});
    report_.cases = s.cases;
    report_.events = s.events;
    report_.rank_events = s.rank_events;
    report_.operations = s.operations;
    report_.compared = s.compared;
    report_.suspicious = s.suspicious;
    report_.judged = s.judged;
    report_.reruns = s.reruns;
    report_.not_run = s.not_run;
    report_.nondeterminism = s.nondeterminism;
    report_.next = last_ ? last_->next : campaign_.resume ? campaign_.resume->next : campaign_.first;
    if (s.stopped) report_.ended_by = Interruption::signal() != 0 ? Interruption::name() : Output::failed() ? "standard output" : "--time";
    report_.seconds = std::max(shards_ ? shards_->seconds : progress_.seconds(), 1.0 / 1024);
    if (!shards_) return;
    report_.next = shards_->next;
    report_.of_shards = true;
    if (report_.ended_by.empty()) report_.ended_by = shards_->ended_by;
  }

  int code_of(const search::CampaignState& s) const {
    if (!s.broken.empty() || s.nondeterminism || !report_.canary) return internal_error;
    if (code_of_files_ != clean) return code_of_files_;
    const auto is_news = [](const report::FoundRow& row) { return row.status == "new" || row.status == "found again"; };
    return still_there_ || std::any_of(report_.found.begin(), report_.found.end(), is_news) ? findings : clean;
  }

  const Options& options_;
  const FuzzOptions& fuzz_;
  search::CampaignOptions campaign_;
  const ShardsOfCampaign* shards_;  // not owned
  const Output& out_;
  FindingsFolder folder_;
  ResumeFile resume_file_;
  Progress progress_{"beginning"};
  report::FuzzReport report_;
  report::MergeReport merged_;
  std::vector<search::Found> known_;
  std::optional<search::Checkpoint> last_;
  Stopwatch since_noted_;
  std::optional<InputError> not_written_;  // why a finding has no file
  int code_of_files_ = clean;
  bool headed_ = false, still_there_ = false, without_resume_ = false;
};

}  // namespace

int fuzz(const Options& options, const FuzzOptions& fuzz, const Output& out) {
  const auto refuse = [](const InputError& error) {
    complain(error);
    return error.unavailable ? unavailable : bad_input;
  };
  auto campaign = campaign_options(options, fuzz);
  if (!campaign) return refuse(campaign.error());
  const Interruption interruption;
  if (!fuzz.catalogue.empty()) return fuzz_catalogue(options, fuzz, out);
  if (const auto error = FindingsFolder(fuzz.findings).refusal()) return refuse(*error);
  if (const auto error = no_case_taken(*campaign); error && !options.of_a_launcher) return refuse(*error);
  if (!fuzz.differ.empty()) return fuzz_differ(options, fuzz, out);
  return Run(options, fuzz, std::move(campaign).value(), out).go();
}

int join_campaign(const Options& options, const FuzzOptions& fuzz, search::CampaignOptions campaign, const ShardsOfCampaign& shards, const Output& out) {
  if (!fuzz.findings.empty())
    if (const auto error = FindingsFolder(fuzz.findings).refusal()) {
      complain(*error);
      return bad_input;
    }
  const Interruption interruption;
  return Run(options, fuzz, std::move(campaign), out, &shards).go();
}

}  // namespace gradledger::tool
