// What the command line asks for, beside what a judgement depends on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/shards.h"
#include "verbs/command.h"
#include "verbs/session.h"

namespace gradledger::tool {

using verbs::file_word;
using verbs::load;
using verbs::Loaded;
using verbs::not_searched;
using verbs::repeat_command;
using verbs::shell_word;
using verbs::Use;

// Of text for people.
struct Look {
  std::string colour = "auto";  // or always, never
  std::size_t width = 0;        // 0: the terminal's
  bool quiet = false, verbose = false;
};

struct Options : verbs::Options {
  bool json = false;                // the format, by a shorter name
  std::string format = "terminal";  // a name of report/format.h
  Look look;
  std::string trace;                                // file to write
  std::string html;                                 // likewise: the report as a page
  std::string chrome_trace;                         // likewise: lanes of streams
  std::string driver_log;                           // likewise, of a real framework's frames
  std::string records;                              // likewise: the JSON report, beside what is printed
  std::string write_page, check_page;               // coverage: files
  std::map<std::string, std::string> result_files;  // format of report/results.h -> file; "-": standard output
  bool github = false;                              // annotations and a step summary
  std::string command_line;                         // of the whole run, as a shell reads it
  std::string repeat;                               // likewise, without what changes neither what is found nor what is written of it
  std::string as_of = "head";                       // of a list
  bool mutants = false;                             // gate: of the oracle, by the catalogue of faults
  std::vector<std::string> only_mutants;            // by name; empty: all
  std::uint32_t mutant_cases = 24;                  // in which a mutant must be found, in each of its engines
  std::uint32_t jobs = 1;                           // of a gate
  std::string instead_as_of;                        // --as-of of a run; empty: what the files say
  std::vector<std::string> instead_config;          // likewise, KEY=VALUE
  std::optional<report::ShardRow> shard;            // of a run that several processes share: which part this one is
  bool of_a_launcher = false;                       // that said so: one of which the others leave nothing is right
};

}  // namespace gradledger::tool
