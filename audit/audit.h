// Whether a training set-up loses gradients: judged as it is, at every release, and with every change that may help.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "audit/setup.h"
#include "report/audit.h"
#include "sim/scenario/scenario.h"
#include "verbs/session.h"

namespace gradledger::audit {

enum class Sweep : std::uint8_t { none, releases, stages, all };

struct Audited {
  report::AuditReport report;
  std::optional<Scenario> scenario;  // that was judged; none where it was refused
  std::string refused;               // the framework refuses the set-up: bad input
};

// Throws ProgramsTooLarge.
Audited audit(const Setup& setup, const verbs::Options& options, Sweep sweep);

}  // namespace gradledger::audit
