// The PTX inside a compiled library, kernel by kernel.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace gradledger::testing {

struct PtxKernel {
  std::string name;                       // mangled
  std::vector<std::string> instructions;  // opcodes with their modifiers: "add.rn.f32"
};

// Every module's text, from its .version to the terminating zero. The library holds them uncompressed (gpu/CMakeLists.txt).
inline std::vector<std::string> ptx_modules(std::string_view library) {
  std::vector<std::string> modules;
  for (std::size_t at = library.find("\n.version "); at != library.npos; at = library.find("\n.version ", at + 1))
    modules.emplace_back(library.substr(at, library.find('\0', at) - at));
  return modules;
}

// How many 64-bit ELF images for the machine 190, which is CUDA, a library holds.
inline std::size_t cubin_count(std::string_view library) {
  constexpr std::size_t machine_at = 18;
  constexpr std::uint16_t cuda = 190;
  std::size_t count = 0;
  for (std::size_t at = library.find("\177ELF\2"); at != library.npos && at + machine_at + 2 <= library.size(); at = library.find("\177ELF\2", at + 1)) {
    std::uint16_t machine;
    std::memcpy(&machine, library.data() + at + machine_at, sizeof(machine));
    count += machine == cuda;
  }
  return count;
}

// An opcode from a line of PTX, without its guard; empty for labels, declarations, directives and braces.
inline std::string opcode_of(std::string_view line) {
  std::size_t begin = line.find_first_not_of(" \t");
  if (begin != line.npos && line[begin] == '@') begin = line.find_first_not_of(" \t", line.find_first_of(" \t", begin));
  if (begin == line.npos || line[begin] < 'a' || line[begin] > 'z') return {};
  return std::string(line.substr(begin, line.find_first_of(" \t;", begin) - begin));
}

inline std::vector<PtxKernel> kernels_of(std::string_view module) {
  std::vector<PtxKernel> kernels;
  bool inside = false;
  for (std::size_t begin = 0; begin < module.size();) {
    const std::size_t end = std::min(module.find('\n', begin), module.size());
    const std::string_view line = module.substr(begin, end - begin);
    begin = end + 1;
    if (const std::size_t entry = line.find(".entry "); entry != line.npos) {
      kernels.push_back({std::string(line.substr(entry + 7, line.find('(') - entry - 7)), {}});
    } else if (line.starts_with("{")) {
      inside = true;
    } else if (line.starts_with("}")) {
      inside = false;
    } else if (inside && !kernels.empty()) {
      if (std::string opcode = opcode_of(line); !opcode.empty()) kernels.back().instructions.push_back(std::move(opcode));
    }
  }
  return kernels;
}

}  // namespace gradledger::testing
