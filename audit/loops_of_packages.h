// Loops that packages write, by release. Each rule names the file that it was read from.
#pragma once

#include "audit/loops.h"

namespace gradledger::audit {

std::vector<LoopPackage> accelerate_packages();
Expansion accelerate(const LoopSetting& setting);

std::vector<LoopPackage> trainer_packages();
Expansion hf_trainer(const LoopSetting& setting);

std::vector<LoopPackage> trl_packages();
Expansion trl(const LoopSetting& setting);

std::vector<LoopPackage> grpo_packages();
Expansion grpo(const LoopSetting& setting);

std::vector<LoopPackage> lightning_packages();
Expansion lightning(const LoopSetting& setting);

}  // namespace gradledger::audit
