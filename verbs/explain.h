// What is known of a class of findings, or of an entry of the catalogue.
#pragma once

#include <filesystem>
#include <string>

#include "report/corpus.h"
#include "sim/base/result.h"
#include "verbs/session.h"

namespace gradledger::verbs {

// Two columns: topic and text. Of an entry, the scenarios of `corpus` that show it are named, and the first of them is replayed, which says
// since which release it is there, in which it is repaired, and how to avoid it. Errors: no such class or entry, with those that look like it.
Result<report::Listing> explain(const std::string& name, const std::filesystem::path& corpus, const Options& options);

}  // namespace gradledger::verbs
