// JSON as people write it: with comments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/scenario/positions.h"

namespace gradledger::audit {

// Of a file: a configuration is no data.
inline constexpr std::uint64_t configuration_bytes_max = 1u << 20;

struct Document {
  std::string file;  // as the user named it
  nlohmann::json json;
  std::map<std::string, Position> places;  // by pointer: where the value begins

  // "ds_config.json:12:5: /zero_optimization/stage"; without a place where the pointer has none.
  std::string where(const std::string& pointer) const;
};

// Comments, // and /* */, are left out; else as read_json() has it.
Result<Document> document_of(std::string_view text, const std::string& file);
// Errors also: the file is larger.
Result<Document> read_document(const std::filesystem::path& path);

}  // namespace gradledger::audit
