// A set-up at every release, in every stage.
#pragma once

#include <string>
#include <vector>

#include "audit/replayer.h"
#include "report/audit.h"

namespace gradledger::audit {

// A state of a package, and what it came to there.
struct AtRelease {
  std::string label;  // "0.16.0 to 0.16.4"
  std::string first;  // of these: how a scenario names it
  Answer answer;
  bool current = false;  // the set-up's own
};

// Every state of the framework's history, oldest first. Empty: it has none.
std::vector<AtRelease> at_releases(const Setup& setup, Replayer& replayer);

// Every state of a package that the loop depends on.
std::vector<AtRelease> at_packages(const Setup& setup, const std::string& package, Replayer& replayer);

// Neighbours with equal verdicts as one.
std::vector<report::AuditReleases> merged(const std::string& package, const std::vector<AtRelease>& at);

// Stages in rows; in columns the set-up's release, or all of them.
report::AuditMatrix stages_matrix(const Setup& setup, Replayer& replayer, bool all_releases);
report::AuditMatrix releases_matrix(const std::string& package, const std::vector<AtRelease>& at);

}  // namespace gradledger::audit
