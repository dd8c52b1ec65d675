#include "tools/gradledger/standard_input.h"

#include <algorithm>
#include <filesystem>

#include "sim/base/files.h"

namespace gradledger::tool {

std::optional<InputError> take_standard_input(const std::vector<std::string*>& files, std::uint64_t bytes_max) {
  const auto is_dash = [](const std::string* file) { return *file == "-"; };
  const auto asked = std::count_if(files.begin(), files.end(), is_dash);
  if (asked == 0) return std::nullopt;
  if (asked > 1) return InputError{"-", "is given more than once; standard input can be read once"};
  for (const std::string* file : files)
    if (std::filesystem::path(*file).lexically_normal() == standard_input_name) return InputError{*file, "has the name of standard input; expected another one beside -"};
  if (auto error = gradledger::take_standard_input(bytes_max)) return error;
  **std::find_if(files.begin(), files.end(), is_dash) = standard_input_name;
  return std::nullopt;
}

}  // namespace gradledger::tool
