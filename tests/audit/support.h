// Audits of the files of this folder, and of set-ups made by hand.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "audit/audit.h"
#include "audit/replayer.h"
#include "tests/tools/command.h"

namespace gradledger::testing {

inline std::string audit_file(const std::string& name) { return (source_folder / "tests/audit/files" / name).string(); }

inline audit::Request request_of(const std::string& file, const std::string& loop, const std::string& deepspeed = "") {
  audit::Request out;
  out.files.config = file.empty() ? "" : audit_file(file);
  out.loop = loop;
  if (!deepspeed.empty()) out.releases["deepspeed"] = deepspeed;
  return out;
}

inline audit::Setup setup_of(const audit::Request& request) {
  audit::Resolved resolved = audit::resolve(request);
  for (const InputError& error : resolved.errors) ADD_FAILURE() << error.text();
  return resolved.setup.value_or(audit::Setup{});
}

inline report::AuditReport audited(const audit::Request& request, audit::Sweep sweep = audit::Sweep::none) {
  const audit::Setup setup = setup_of(request);
  if (!setup.framework) return {};
  audit::Audited out = audit::audit(setup, {}, sweep);
  EXPECT_EQ(out.refused, "");
  return out.report;
}

// What it comes to, without releases and advice.
inline audit::Answer answered(const audit::Request& request) {
  const audit::Setup setup = setup_of(request);
  if (!setup.framework) return {};
  const verbs::Options options;
  return audit::Replayer(setup, options).answer(audit::variant_of(setup));
}

inline std::vector<std::string> errors_of(const audit::Request& request) {
  std::vector<std::string> out;
  for (const InputError& error : audit::resolve(request).errors) out.push_back(error.text());
  return out;
}

}  // namespace gradledger::testing
