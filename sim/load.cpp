#include "sim/load.h"

#include "sim/frameworks/framework.h"
#include "sim/base/files.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/parse.h"
#include "sim/scenario/positions.h"

namespace gradledger {

namespace {

// What the script asks of /expect and /gradients must be there.
std::optional<InputError> whole_problem(const Scenario& s, const Timeline& timeline) {
  for (std::size_t i = 0; i < s.expect.values.size(); ++i)
    if (s.expect.values[i].event >= timeline.events.size())
      return InputError{"/expect/values/" + std::to_string(i) + "/event", "lies past the script's last event, " + std::to_string(timeline.events.size() - 1)};
  if (s.gradients.kind != GradientKind::values) return std::nullopt;
  for (const Backward& backward : timeline.backwards)
    for (std::uint32_t r = 0; r < s.world_size; ++r)
      if (backward.micro_batch[r] != no_contribution && backward.data[r] >= s.gradients.values->size())
        return InputError{timeline.pointers[timeline.events[backward.event].item], "needs the gradient of micro-batch " + std::to_string(backward.data[r]) +
                                                                                       ", but /gradients give " + std::to_string(s.gradients.values->size()) +
                                                                                       " micro-batches; name one with \"micro_batch\""};
  return std::nullopt;
}

}  // namespace

Result<Timeline> make_timeline(const Scenario& scenario) {
  auto contract = framework_of(scenario).contract(scenario);
  if (!contract) return contract.error();
  return unroll(scenario, scenario.script, std::move(contract).value());
}

std::optional<InputError> admission_error(const Scenario& scenario) {
  const auto selected = select_engine(scenario);
  if (!selected) return selected.error();
  for (std::size_t i = 0; i < scenario.expect.not_allocated.size(); ++i)
    if (!names_buffer_family(scenario, scenario.expect.not_allocated[i]))
      return InputError{"/expect/not_allocated/" + std::to_string(i), "names no buffer that an engine allocates; expected one that \"gradledger list buffers\" prints"};
  return std::nullopt;
}

Result<Scenario> parse_whole_scenario(std::string_view text, const std::filesystem::path& directory) {
  constexpr ConfigReaders readers{.named = [](std::string_view id) -> const ConfigReader* { return framework_named(id); }, .ids = framework_ids};
  auto scenario = parse_scenario(text, directory, readers);
  if (!scenario) return scenario.error();
  const auto timeline = make_timeline(*scenario);
  if (!timeline) return timeline.error();
  if (auto error = whole_problem(*scenario, *timeline)) return *error;
  return scenario;
}

Result<Scenario> read_scenario(std::string_view text, const std::filesystem::path& directory) {
  auto scenario = parse_whole_scenario(text, directory);
  if (!scenario) return scenario;
  if (auto error = admission_error(*scenario)) return *error;
  return scenario;
}

Result<Scenario> load_scenario(const std::filesystem::path& path) {
  const auto text = read_file(path);
  if (!text) return text.error();
  auto scenario = read_scenario(*text, path.parent_path());
  if (scenario) return scenario;
  return InputError{place_in(path, *text, scenario.error().where), scenario.error().message};
}

}  // namespace gradledger
