// Loops of reinforcement learning that packages write, and of open-instruct's fine-tuning, by release. Each rule names the file that it was read from.
#pragma once

#include "loops/loops.h"

namespace gradledger::loops {

std::vector<LoopPackage> verl_packages();
Expansion verl(const LoopSetting& setting);
std::string refused_by_verl(const LoopSetting& setting);

std::vector<LoopPackage> nemo_rl_packages();
Expansion nemo_rl(const LoopSetting& setting);

std::vector<LoopPackage> open_instruct_packages();
Expansion open_instruct(const LoopSetting& setting);

std::vector<LoopPackage> finetune_packages();
std::string refused_by_finetune(const LoopSetting& setting);
Expansion open_instruct_finetune(const LoopSetting& setting);

}  // namespace gradledger::loops
