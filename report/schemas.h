// The JSON Schemas (draft 7) of what the command prints and reads, put into the program by CMake: docs/schemas.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gradledger::report {

struct EmbeddedSchema {
  std::string_view name;  // of the record: "replay"
  std::string_view text;  // of its file
};

// By name. Beside the records "common", to which they refer.
std::span<const EmbeddedSchema> embedded_schemas();

// What it is of, in a line.
std::string title_of(const EmbeddedSchema& schema);

// A schema that stands for itself, with what it refers to in it; nothing where there is none of the name.
std::optional<std::string> schema_text(std::string_view name);

}  // namespace gradledger::report
