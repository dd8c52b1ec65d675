// The verbs of the command. Each prints what it has and returns the exit code.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/frameworks/framework.h"
#include "tools/gradledger/options.h"

namespace gradledger::tool {

struct AuditVerb;
struct ExploreVerb;
struct FuzzOptions;
struct GateVerb;
class Output;

int replay(const std::vector<std::string>& files, const Options& options, const Output& out);
int gate(const std::vector<std::string>& paths, const Options& options, const GateVerb& verb, const Output& out);
int gate_mutants(const std::vector<std::string>& paths, const Options& options, const Output& out);
int coverage(const std::string& folder, const Options& options, const Output& out);
int fuzz(const Options& options, const FuzzOptions& fuzz, const Output& out);
int explore(const Options& options, const ExploreVerb& verb, const Output& out);
int explain(const std::string& name, const std::string& corpus, const Options& options, const Output& out);
// into: the trace to write.
int record(const std::string& file, const std::string& into, const Options& options, const Output& out);
int conform(const std::vector<std::string>& files, const Output& out);
// run: of this name alone; empty: all.
int judge_recordings(const std::vector<std::string>& files, const std::string& run, const Options& options, const Output& out);
int audit(const Options& options, AuditVerb& verb, const Output& out);
int list(const std::string& what, const Options& options, const Output& out);
int schema(const std::string& name);

// What is said, as one line without its end, whatever was in a file or a name.
std::string one_line(const std::string& text);
// On standard error, as one line, whatever was in a file or a name. Never throws: there is nowhere left to report to.
void say(const std::string& text);
// Of several lines, as what a process printed last.
void say_lines(const std::string& text);

// Says it where a release that is not known is taken as one that is.
void say_what_is_taken_as(const std::string& where, const Framework& framework, const std::string& as_of);
void say_what_is_taken_as(const Loaded& loaded);

// One error, on standard error, in one form. code: what the command ends with for it, where that is neither bad input nor what this machine lacks.
void complain(const InputError& error, int code);
void complain(const InputError& error);
// The same, of several lines.
void complain_lines(const std::string& text, int code);

// Hears every complaint too, while it lives: errors are for programs as well. One at a time.
class ErrorListener {
 public:
  explicit ErrorListener(std::function<void(const InputError&, int)> hear);
  ~ErrorListener();
  ErrorListener(const ErrorListener&) = delete;
  ErrorListener& operator=(const ErrorListener&) = delete;
};

// The process of one rank, which --ranks processes and --ranks launcher start.
int rank(const Options& options, std::uint32_t number, const std::string& address);

}  // namespace gradledger::tool
