#include "sim/load.h"

#include "sim/engine/buffers.h"
#include "sim/engine/engine.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/parse.h"

namespace gradledger {

std::optional<InputError> admission_error(const Scenario& scenario) {
  const auto selected = select_engine(scenario);
  if (!selected) return selected.error();
  for (std::size_t i = 0; i < scenario.expect.not_allocated.size(); ++i)
    if (!names_buffer_family(scenario, scenario.expect.not_allocated[i]))
      return InputError{"/expect/not_allocated/" + std::to_string(i),
                        "names no buffer that an engine allocates; expected one that \"gradledger list buffers\" prints"};
  return std::nullopt;
}

Result<Scenario> read_scenario(std::string_view text, const std::filesystem::path& directory) {
  auto scenario = parse_scenario(text, directory);
  if (!scenario) return scenario.error();
  if (auto error = admission_error(*scenario)) return *error;
  return scenario;
}

Result<Scenario> load_scenario(const std::filesystem::path& path) {
  const auto text = read_file(path);
  if (!text) return text.error();
  auto scenario = read_scenario(*text, path.parent_path());
  if (scenario) return scenario;
  const InputError& error = scenario.error();
  return InputError{path.string() + (error.where.empty() ? "" : ": " + error.where), error.message};
}

}  // namespace gradledger
