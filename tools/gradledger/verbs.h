// The verbs of the command. Each returns the exit code.
#pragma once

#include <string>
#include <vector>

#include "sim/frameworks/framework.h"
#include "tools/gradledger/session.h"

namespace gradledger::tool {

struct ExploreVerb;
struct FuzzOptions;

int replay(const std::vector<std::string>& files, const Options& options);
int gate(const std::vector<std::string>& paths, const Options& options);
int gate_mutants(const std::vector<std::string>& paths, const Options& options);
int coverage(const std::string& folder, const Options& options);
int fuzz(const Options& options, const FuzzOptions& fuzz);
int explore(const Options& options, const ExploreVerb& verb);
int list(const std::string& what, const Options& options);

// On standard error, as one line, whatever was in a file or a name. Never throws: there is nowhere left to report to.
void say(const std::string& text);

// Says it where a release that is not known is taken as one that is.
void say_what_is_taken_as(const std::string& where, const Framework& framework, const std::string& as_of);
void say_what_is_taken_as(const std::string& file, const Scenario& scenario);

// One error, on standard error, in one form.
void complain(const InputError& error);

// The process of one rank, which --ranks processes and --ranks launcher start.
int rank(const Options& options, std::uint32_t number, std::uint16_t port);

}  // namespace gradledger::tool
