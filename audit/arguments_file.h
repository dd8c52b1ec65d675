// Megatron-LM's arguments as people keep them: in the script that starts a training, or in a file of arguments.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "audit/json_file.h"

namespace gradledger::audit {

// Whether a text has arguments rather than JSON: it begins as a script, or with "--".
bool has_arguments(std::string_view text);

// Every "--name value ..." of a text, as an object by the names that Megatron's parser gives them: {"overlap_grad_reduce": true, "lr": 0.1}. Words before the
// first argument are left out; the last one of a name counts. Variables are filled in where the text itself sets them, as NAME=value.
Result<Document> arguments_of(std::string_view text, const std::string& file);
// Errors also: the file is larger than a configuration is.
Result<Document> read_arguments(const std::filesystem::path& path);

// Ranks that torchrun starts by these arguments; nothing where they do not say it.
std::optional<std::uint32_t> ranks_of(const nlohmann::json& arguments);

}  // namespace gradledger::audit
