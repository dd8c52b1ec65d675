// One scenario, loaded and judged: what the verbs share. Nothing here prints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ref/oracle.h"
#include "sim/accounting.h"
#include "sim/base/limits.h"
#include "sim/base/result.h"
#include "sim/execution/devices.h"
#include "sim/execution/rank.h"
#include "sim/producers/driver/driver_producer.h"
#include "sim/producers/producers.h"
#include "sim/scenario/overrides.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"

namespace gradledger::verbs {

// What a judgement depends on, and what its report is to hold.
struct Options {
  std::uint64_t seed = 0;
  bool full_ledger = false;
  bool summary = false;                        // a report without a line for each event; of an accounting without the ranks
  bool accounting = false;                     // bytes and collectives of a dry run instead of a judgement
  std::string schedule = "seeded";             // seeded, round-robin, or a trace file whose decisions are replayed
  std::optional<std::uint64_t> schedule_seed;  // of the schedule alone
  std::string producer = "host";
  std::string executor = "auto";          // which runs judge: symbolic, numeric, or auto, both where numbers fit
  std::string ranks = "threads";          // of the gpu producer: threads, processes or launcher
  std::uint64_t deadline_s = 120;         // likewise, of every answer
  std::string compare;                    // two producers, "host,gpu": their traces are compared and nothing is judged
  Devices* devices = nullptr;             // of the gpu producer, made from the above; not owned
  driver::DriverRanks* driver = nullptr;  // of a producer that is a real framework, made from the above; not owned
  std::string python = "python3";         // that has the framework
  std::string backend = "gradledger";     // of its process group
  std::string deliver = "eager";          // when results of asynchronous collectives arrive
  std::string streams;                    // "virtual": those of a real framework on a CPU, held against the order of its waits
  std::string against;                    // "sim": a real framework's weights are held against its model's too
  bool uses_devices() const { return producer == "gpu" || compare.find("gpu") != compare.npos; }
  std::uint64_t memory_limit = limits::memory_bytes_default;
  std::vector<Override> overrides;  // said in place of what the files say
};

// What a scenario is loaded for. A judgement on numbers must fit the memory limit, and so must a search, which always runs on them; a symbolic or
// dry run holds no elements. A gate judges unless the scenario expects accounting alone.
enum class Use : std::uint8_t { judge, account, gate, search };

// Loaded, admitted, and where it is judged within the memory limit and with no more ranks than run where --ranks wants them.
struct Loaded {
  std::filesystem::path path;
  Scenario scenario;
  Timeline timeline;
  std::string engine;
  std::vector<Override> overrides;  // that are in the scenario

  // A place of the scenario as errors name it: that of the file, or the option that says what is there.
  std::string place(const std::string& pointer) const;
};

// all: every error, the first of which the result has.
Result<std::unique_ptr<Loaded>> load(const std::filesystem::path& path, const Options& options, Use use = Use::judge, std::vector<InputError>* all = nullptr);

// As the files have them: what is said in place of them is for those that the command names, not for those that these refer to.
Options without_overrides(const Options& options);

// Searches vary, fold and shrink what they know of a framework. None: they know its scenarios.
std::optional<InputError> not_searched(const Loaded& loaded);

// Bytes that the elements of the scenario take at the peak of a judgement, from above: the formula of docs/architecture.md. What is left
// of the limit is for the ranks' programs.
std::uint64_t bytes_needed(const Scenario& scenario);
std::uint64_t program_bytes_max(const Loaded& loaded, const Options& options);
InputError programs_too_large(const Loaded& loaded, const Options& options);

// Which runs judge it: those that --executor names, and by default the symbolic one alone where the elements do not fit the memory limit.
ref::Executor executor_of(const Scenario& scenario, const Options& options);

// The producer that the options name, with the limit of its programs set.
std::unique_ptr<Producer> make_producer(const Loaded& loaded, const Options& options);

Result<Schedule> schedule_from(const Options& options);

// What the driver of a real framework replaced by something like it, so far; of other producers nothing.
std::vector<std::string> driver_notes(const Producer& producer);

// Throws ProgramsTooLarge where the script is too long for the memory limit; of a driver also driver::NotRun and RunFailure. notes: what the
// driver replaced by something like it.
ref::Verdict judge(const Loaded& loaded, const Options& options, TraceSink* watch, std::vector<std::string>* notes = nullptr);

// Of a framework that has no engine here, nothing is said.
// Says of each finding whose it is, and which known defect, by judging what the script would have been on the host. Throws ProgramsTooLarge.
void explain(const Loaded& loaded, const Options& options, ref::Verdict& verdict);

// What the scenario holds and sends, by accounting_run() of its linear programs, with `look` by a dry run; `watch`, if any, sees the run too, and `look`, if any, its ranks and races
// after it. Throws ProgramsTooLarge.
Accounting account(const Loaded& loaded, const Options& options, TraceSink* watch, const std::function<void(std::span<const Rank>)>& look = {});

}  // namespace gradledger::verbs
