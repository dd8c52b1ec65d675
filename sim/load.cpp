#include "sim/load.h"

#include "sim/frameworks/framework.h"
#include "sim/base/files.h"
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

namespace {

constexpr ConfigReaders readers{.named = [](std::string_view id) -> const ConfigReader* { return framework_named(id); }, .ids = framework_ids};

// Whether an engine serves it is asked too where `admit` says so: that may be wrong beside what the script does.
std::optional<Scenario> whole_scenario(std::string_view text, const std::filesystem::path& directory, std::vector<Override>& overrides, bool admit, ErrorList& errors) {
  auto scenario = parse_scenario(text, directory, readers, overrides, errors);
  if (!scenario) return std::nullopt;
  const auto timeline = make_timeline(*scenario);
  if (!timeline) errors.add(timeline.error());
  else if (const auto error = whole_problem(*scenario, *timeline)) errors.add(*error);
  if (admit)
    if (const auto error = admission_error(*scenario)) errors.add(*error);
  return errors.empty() ? std::move(scenario) : std::nullopt;
}

}  // namespace

Result<Scenario> parse_whole_scenario(std::string_view text, const std::filesystem::path& directory) {
  std::vector<Override> none;
  ErrorList errors;
  auto scenario = whole_scenario(text, directory, none, false, errors);
  if (!scenario) return errors.front();
  return std::move(*scenario);
}

Result<Scenario> read_scenario(std::string_view text, const std::filesystem::path& directory, const std::vector<Override>& overrides, std::vector<InputError>* all) {
  std::vector<Override> put = overrides;
  ErrorList errors;
  auto scenario = whole_scenario(text, directory, put, true, errors);
  if (scenario) return std::move(*scenario);
  std::vector<InputError> ordered = in_order(errors.all(), text);
  for (InputError& one : ordered) one = named_by_options(std::move(one), put);
  const InputError first = ordered.front();
  if (all) *all = std::move(ordered);
  return first;
}

Result<Scenario> load_scenario(const std::filesystem::path& path, const std::vector<Override>& overrides, std::vector<InputError>* all) {
  std::vector<InputError> errors;
  const auto text = read_file(path);
  auto scenario = text ? read_scenario(*text, path.parent_path(), overrides, &errors) : Result<Scenario>(text.error());
  if (scenario) return scenario;
  errors = text ? placed(std::move(errors), path, *text) : std::vector{text.error()};
  const InputError first = errors.front();
  if (all) *all = std::move(errors);
  return first;
}

}  // namespace gradledger
