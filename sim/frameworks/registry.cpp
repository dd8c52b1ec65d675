// The frameworks that there are. A new one is a folder beside this file and a line in frameworks().
#include <algorithm>
#include <array>
#include <vector>

#include "sim/frameworks/deepspeed/framework.h"
#include "sim/frameworks/framework.h"
#include "sim/frameworks/loop_admission.h"
#include "sim/scenario/layout.h"
#include "sim/frameworks/megatron/framework.h"
#include "sim/frameworks/megatron_fsdp/framework.h"
#include "sim/frameworks/megatron_fsdp/v2/framework.h"
#include "sim/frameworks/search_space.h"
#include "sim/frameworks/torch/ddp/framework.h"
#include "sim/frameworks/torch/fsdp1/framework.h"
#include "sim/frameworks/torch/fsdp2/framework.h"
#include "sim/frameworks/torch/outside/framework.h"

namespace gradledger {

std::span<const Framework* const> frameworks() {
  static const std::array all{deepspeed::framework(),          torch::ddp(),   torch::fsdp2(),   torch::fsdp1(), megatron::framework(), megatron_fsdp::framework(),
                              megatron_fsdp::second_version(), torch::plain(), torch::external()};
  return all;
}

std::vector<std::string> framework_ids() {
  std::vector<std::string> out;
  for (const Framework* framework : frameworks()) out.emplace_back(framework->id());
  return out;
}

const Framework* framework_named(std::string_view id) {
  const auto at = std::find_if(frameworks().begin(), frameworks().end(), [&](const Framework* f) { return f->id() == id; });
  return at == frameworks().end() ? nullptr : *at;
}

const Framework& default_framework() { return framework_of(Scenario{}); }

const Framework& framework_of(const Scenario& scenario) {
  const Framework* found = framework_named(scenario.engine.framework);
  expects(found != nullptr, "a scenario's framework is one that there is");
  return *found;
}

const SearchSpace& search_space_of(const Scenario& scenario) {
  const SearchSpace* space = framework_of(scenario).search_space();
  expects(space != nullptr, "a framework that is not searched was asked what varies in it");
  return *space;
}

std::span<const Entry> catalogue() {
  static const std::vector<Entry> all = [] {
    std::vector<Entry> out;
    const auto add = [&](std::span<const Entry> entries) { out.insert(out.end(), entries.begin(), entries.end()); };
    for (const Framework* f : frameworks()) add(f->catalogue());
    add(loop_defects());
    return out;
  }();
  return all;
}

Result<const Entry*> entry_named(std::string_view id, std::string_view where) { return entry_named(id, where, {catalogue()}); }

namespace {

std::string those_that_lay_out_ranks() {
  std::string out;
  for (const Framework* framework : frameworks())
    if (framework->lays_out_ranks()) out += (out.empty() ? "" : " or ") + std::string(framework->id());
  return out;
}

}  // namespace

// What a layout or a parameter says that the framework's engines have no place for.
std::optional<InputError> unlaid_problem(const Scenario& s) {
  const Framework& framework = framework_of(s);
  if (framework.lays_out_ranks()) return std::nullopt;
  const std::string with = std::string(framework.title());
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p)
    for (const auto& [key, stated] : {std::pair{"/sharded_over", s.parameters[p].part.has_value()}, std::pair{"/summed_over", !s.parameters[p].summed_over.empty()},
                                      std::pair{"/averaged_over", !s.parameters[p].averaged_over.empty()}})
      if (stated)
        return InputError{parameter_pointer(s, p) + key,
                          "is not modelled with " + with + ", where every rank's gradient stands for itself; expected framework " + those_that_lay_out_ranks()};
  return neighbours_problem(s, with);
}

Result<const EngineInfo*> select_engine(const Scenario& scenario) {
  if (auto problem = unlaid_problem(scenario)) return *problem;
  return framework_of(scenario).select(scenario);
}
std::string_view engine_name(const Scenario& scenario) { return (*select_engine(scenario))->name; }
EngineFactory engine_factory(const Scenario& scenario) { return framework_of(scenario).factory(scenario); }
std::unique_ptr<Engine> make_engine(const EngineContext& context) { return engine_factory(*context.scenario)(context); }
BufferPurposes purposes_of_buffers(const Scenario& scenario) { return BufferPurposes(scenario, framework_of(scenario).buffer_families()); }
bool names_buffer_family(const Scenario& scenario, std::string_view name) { return names_one_of(framework_of(scenario).buffer_families(), scenario, name); }

}  // namespace gradledger
