// Traces: written while a scenario runs, and read again, ready to be judged.
#pragma once

#include <memory>
#include <string>

#include "conformance/trace/trace_reader.h"
#include "verbs/session.h"

namespace gradledger::verbs {

struct LoadedTrace {
  Loaded loaded;
  conform::TraceOrigin origin;
  conform::TraceBody body;  // refers to what was loaded
  Producer& producer() { return *body.producer; }
  bool simulated() const;
};

std::string origin_text(const conform::TraceOrigin& origin);  // "deepspeed (deepspeed 0.19.8, torch 2.13.0)"

// The same passes are asked for while a trace is written and when it is judged.
ref::OracleOptions oracle_of_trace(std::uint64_t seed);

struct WrittenTrace {
  std::string producer;  // who ran it, with releases
  std::uint64_t passes = 0;
};

// Runs whatever the oracle asks for, and keeps it in a file. Errors: of that file. Throws as judge() does. Where it does not come to its end, or is
// ended, there is no file, or the one that was there before.
Result<WrittenTrace> write_trace(const Loaded& loaded, const Options& options, const std::string& file);

// Errors: of the file and its lines, a scenario that is not right, and more than the memory limit.
Result<std::unique_ptr<LoadedTrace>> load_trace(const std::string& file, const Options& options);

}  // namespace gradledger::verbs
