// fsdp_config, as files of accelerate and arguments of a Trainer have it.
#pragma once

#include <cstdint>
#include <string>

#include "audit/people_files.h"

namespace gradledger::audit {

// A section of fsdp_config. `below`: where it stands in its file; version_otherwise: the one that is meant where it names none.
void take_fsdp(const Document& file, const nlohmann::json& section, const std::string& below, std::int64_t version_otherwise, Given& out);

// transformers/training_args.py, _apply_legacy_fsdp_to_config: words beside fsdp_config, which say what the section does not.
void take_fsdp_words(const Document& file, const nlohmann::json& words, nlohmann::json& section, Given& out);

}  // namespace gradledger::audit
