// What the command's exit code means. docs/command-line.md is held against this table by a test.
#pragma once

#include <array>
#include <string_view>

namespace gradledger::tool {

enum ExitCode : int { clean = 0, findings = 1, bad_input = 2, internal_error = 3, unavailable = 4, broken_run = 5, interrupted = 130, terminated = 143 };

struct ExitCodeInfo {
  ExitCode code;
  std::string_view meaning;
};

inline constexpr std::array<ExitCodeInfo, 8> exit_codes{{
    {clean,
     "clean: no findings; audit: not affected; gate: every scenario as expected, or every mutant found; explore: and complete; fuzz and explore look at documented scripts alone "
     "where --any-script is "
     "not given"},
    {findings,
     "findings; audit: affected; conform: a run differs; gate: a scenario is not as expected, or a mutant survives; coverage: an entry is open, or the page is out of date; "
     "explore: or not complete; fuzz: or a known defect is not found"},
    {bad_input,
     "bad input: an option, a file, a scenario or a recording is not right, or leaves nothing to judge or to compare; audit: also where a setting that touches gradients is not "
     "modelled; or a report cannot be written"},
    {internal_error, "internal error: a bug in gradledger; fuzz: a case that breaks it or does not run twice alike, or a canary that is not found"},
    {unavailable,
     "not available: needs a GPU, a real framework that takes the scenario, more ranks than --ranks threads takes, or more memory than the machine or --memory-limit has; "
     "conform: no run that is known here"},
    {broken_run,
     "broken run: a rank's process, its GPU or NCCL failed, or did not answer within --deadline; merge: a shard has no whole report; explore: a process of --mpi is gone"},
    {interrupted, "interrupted: SIGINT ended a fuzz, an explore or a gate; what it found until then is in its report and its files"},
    {terminated, "terminated: likewise by SIGTERM"},
}};

}  // namespace gradledger::tool
