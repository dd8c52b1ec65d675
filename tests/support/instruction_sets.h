// The instruction sets that what runs on vectors was compiled for and that this processor has, each to be tried by itself. A command that is
// carried (GRADLEDGER_CARRIED) has one, and nothing to choose among.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#ifndef GRADLEDGER_ONE_INSTRUCTION_SET
#include <hwy/targets.h>
#endif

namespace gradledger {

#ifdef GRADLEDGER_ONE_INSTRUCTION_SET

inline std::vector<std::int64_t> instruction_sets() { return {0}; }
inline std::string name_of_instruction_set(std::int64_t) { return "compiled_in"; }
inline void use_instruction_set(std::int64_t) {}
inline void use_best_instruction_set() {}

#else

inline std::vector<std::int64_t> instruction_sets() { return hwy::SupportedAndGeneratedTargets(); }
inline std::string name_of_instruction_set(std::int64_t which) { return hwy::TargetName(which); }
inline void use_instruction_set(std::int64_t which) { hwy::SetSupportedTargetsForTest(which); }
inline void use_best_instruction_set() { hwy::SetSupportedTargetsForTest(0); }

#endif

}  // namespace gradledger
