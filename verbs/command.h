// The commands that repeat what a verb did, as a shell reads them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "verbs/session.h"

namespace gradledger::verbs {

// A path or option as a shell reads it back: plain where it can be, quoted, or with its bytes spelt out.
std::string shell_word(const std::string& path);

// A file as the command line names it: "-" where it is standard input.
std::string file_word(const std::filesystem::path& path);

// " --as-of 0.19.0 --config zero_optimization.stage=2"
std::string overrides_words(const std::vector<Override>& overrides);

// Who runs the script, and how, where it is not the simulator: " --producer deepspeed --python python3 --streams virtual".
std::string producer_words(const Options& options);

// The command that repeats a replay.
std::string repeat_command(const std::vector<std::filesystem::path>& paths, const Options& options);

// The command that judges these recordings again, or the run of this name in them.
std::string judge_command(const std::vector<std::string>& files, const std::string& run, const Options& options);

// The command that runs the schedule in which a race shows in the values; empty where none was found.
std::string race_command(const std::filesystem::path& path, const Options& options, const ref::Finding& finding);

}  // namespace gradledger::verbs
