// Loops that packages write, by release. Each rule names the file that it was read from.
#pragma once

#include "loops/loops.h"

namespace gradledger::loops {

std::vector<LoopPackage> accelerate_packages();
Expansion accelerate(const LoopSetting& setting);
// weight: of the loss as the loop takes it, before accelerate divides it; empty: 1.
Expansion accelerate_with(const LoopSetting& setting, const std::string& weight, const std::string& divide_by);

std::vector<LoopPackage> trainer_packages();
Expansion hf_trainer(const LoopSetting& setting);
std::string refused_by_trainer(const LoopSetting& setting);

std::vector<LoopPackage> trl_packages();
Expansion trl(const LoopSetting& setting);

std::vector<LoopPackage> grpo_packages();
Expansion grpo(const LoopSetting& setting);

std::vector<LoopPackage> lightning_packages();
Expansion lightning(const LoopSetting& setting);
Expansion lightning_manual(const LoopSetting& setting);

}  // namespace gradledger::loops
