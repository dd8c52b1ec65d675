// Loops of torchtitan, torchtune and NeMo by release. Each rule names the file that it was read from.
#pragma once

#include "loops/loops.h"

namespace gradledger::loops {

std::vector<LoopPackage> torchtitan_packages();
Expansion torchtitan(const LoopSetting& setting);

std::vector<LoopPackage> torchtune_packages();
Expansion torchtune(const LoopSetting& setting);
std::string refused_by_torchtune(const LoopSetting& setting);

std::vector<LoopPackage> nemo_packages();
std::string refused_by_nemo(const LoopSetting& setting);

}  // namespace gradledger::loops
