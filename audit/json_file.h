// JSON as people write it: with comments, and with mistakes that have names.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"

namespace gradledger::audit {

struct Document {
  std::string file;  // as the user named it
  nlohmann::json json;
  std::map<std::string, std::pair<std::size_t, std::size_t>> places;  // by pointer: line and column of the value, from 1

  // "ds_config.json:12:5: /zero_optimization/stage"; without a place where the pointer has none.
  std::string where(const std::string& pointer) const;
};

// Comments, // and /* */, are left out. Errors name the cause where it is a known one: a trailing comma, single quotes, True, NaN.
Result<Document> document_of(std::string_view text, const std::string& file);
Result<Document> read_document(const std::filesystem::path& path);

}  // namespace gradledger::audit
