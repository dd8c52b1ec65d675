// Options of `audit`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "audit/audit.h"
#include "tools/gradledger/options.h"

namespace gradledger::tool {

struct AuditVerb {
  audit::Request request;
  std::string deepspeed, pytorch, transformers, accelerate;  // releases
  std::vector<std::string> releases;                         // "trl=1.16.0"
  std::string python;                                        // whose environment is asked for releases; empty: none's
  std::string sweep, write_scenario;
};

// Options that audit has in common with others come from elsewhere.
CLI::App* add_audit(CLI::App& app, AuditVerb& verb);

// Those that it reads, which may be "-".
std::vector<std::string*> files_of(AuditVerb& verb);

}  // namespace gradledger::tool
