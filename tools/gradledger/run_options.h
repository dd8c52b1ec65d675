// Options that several verbs have: how to run, who runs, and what becomes of the report.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "tools/gradledger/options.h"

namespace gradledger::tool {

void add_deadline(CLI::App* verb, Options& options);
void add_compare(CLI::App* verb, Options& options);
void add_format(CLI::App* verb, Options& options, const std::string& json_is);
void add_memory_limit(CLI::App* verb, Options& options);
void add_html(CLI::App* verb, Options& options);

// What is said in place of scenario files; take_overrides() reads it. Errors: what is no KEY=VALUE, a release where an installed one runs.
void add_overrides(CLI::App* verb, Options& options);
void add_config(CLI::App* verb, Options& options);

// The JSON report in a file, of verbs that several processes may share.
void add_records(CLI::App* verb, Options& options);
std::optional<InputError> take_overrides(Options& options);

// Seed, form and memory of a verb that judges. json_of: what a JSON object is of.
void add_run(CLI::App* verb, Options& options, const char* json_of);

void add_producer(CLI::App* verb, Options& options);
// Orders and states of the simulator are explored, or a real framework; a GPU is neither.
void add_real_producer(CLI::App* verb, Options& options);

// Beside what is printed, as many as are asked for. What is not about scenarios has none. not_with: options of the verb.
void add_results(CLI::App* verb, Options& options, std::initializer_list<const char*> not_with);

// Of verbs that judge. not_with: options of the verb.
void add_executor(CLI::App* verb, Options& options, std::initializer_list<const char*> not_with);

// A run with its producer.
void add_common(CLI::App* verb, Options& options, const char* json_of = "scenario");

}  // namespace gradledger::tool
