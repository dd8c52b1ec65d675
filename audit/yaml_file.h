// YAML files of accelerate, as JSON.
#pragma once

#include <filesystem>

#include "audit/json_file.h"

namespace gradledger::audit {

// Scalars become numbers, booleans and null as YAML's core schema has them, all else text. Errors carry line and column.
Result<Document> read_yaml(const std::filesystem::path& path);

}  // namespace gradledger::audit
