// fsdp_config, as files of accelerate and arguments of a Trainer have it. Both default to a version of FSDP, and what they default to changed with their
// releases: those that are known are asked, and the newest that was read where none is.
#pragma once

#include <string>

#include "audit/people_files.h"
#include "loops/releases.h"

namespace gradledger::audit {

// The section of accelerate's file, with what `accelerate launch` fills in.
void take_launched_fsdp(const Document& file, const nlohmann::json& section, const loops::Releases& releases, Given& out);

// A Trainer's `fsdp` beside its fsdp_config; `section_file`: where the latter stands, in itself or below /fsdp_config.
void take_trained_fsdp(const Document& file, const nlohmann::json& words, const Document& section_file, const std::string& below, const nlohmann::json& section,
                       const loops::Releases& releases, Given& out);

}  // namespace gradledger::audit
