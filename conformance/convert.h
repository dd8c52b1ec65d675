// Recordings in either format to a file in the compact one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/base/result.h"

namespace gradledger::conform {

enum class Keep { all, expressible, inexpressible };

struct Selection {
  Keep keep = Keep::all;
  std::string because;  // of inexpressible runs, those whose reason holds this text
};

struct Converted {
  std::uint64_t read = 0;
  std::uint64_t written = 0;
  std::map<std::string, std::uint64_t> inexpressible;  // by reason, kept or not
};

// Reads what it wrote again and compares: the runs are bit for bit the same. Errors: of the files and their lines, nothing to write, and a
// run that did not survive.
Result<Converted> convert(const std::vector<std::string>& from, const std::string& to, const Selection& selection);

}  // namespace gradledger::conform
