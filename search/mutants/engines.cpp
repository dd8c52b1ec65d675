// Which engines have what a fault breaks, by what they do with gradients.
#include "search/draw/variants.h"
#include "search/mutants/blocks.h"

namespace gradledger::search {

std::vector<std::string_view> engines_that(bool (*fit)(const EngineTraits&)) {
  std::vector<std::string_view> out;
  for (const Variant& variant : variants())
    if (fit(variant.traits)) out.push_back(variant.name);
  return out;
}

std::vector<std::string_view> loop_engines_that(bool (*fit)(const EngineTraits&)) {
  std::vector<std::string_view> out;
  for (const Framework* framework : frameworks()) {
    if (!framework->search_space()) continue;
    for (const Variant& variant : framework->search_space()->variants()) {
      Scenario world;
      variant.apply(world);
      if (!framework->search_space()->calls(world)->manages_windows() && fit(variant.traits)) out.push_back(variant.name);
    }
  }
  return out;
}

const std::vector<std::string_view> every_variant = engines_that([](const EngineTraits&) { return true; });
const std::vector<std::string_view> all_but_whole_accumulators = engines_that([](const EngineTraits& t) { return t.reduces_to_owners || !t.accumulates_itself; });
const std::vector<std::string_view> owner_variants = engines_that([](const EngineTraits& t) { return t.reduces_to_owners; });
const std::vector<std::string_view> offload_variants = engines_that([](const EngineTraits& t) { return t.offloads; });
const std::vector<std::string_view> device_variants = engines_that([](const EngineTraits& t) { return !t.offloads; });
const std::vector<std::string_view> flat_variants = engines_that([](const EngineTraits& t) { return t.gathers_weights; });
const std::vector<std::string_view> bucket_variants = engines_that([](const EngineTraits& t) { return t.reduces_to_owners && t.gathers_weights; });
const std::vector<std::string_view> plain_variants = engines_that([](const EngineTraits& t) { return !t.accumulates_itself && !t.reduces_to_owners; });
const std::vector<std::string_view> replicating_variants = engines_that([](const EngineTraits& t) { return !t.reduces_to_owners; });
const std::vector<std::string_view> whole_accumulators = engines_that([](const EngineTraits& t) { return t.accumulates_itself && !t.reduces_to_owners; });
const std::vector<std::string_view> wide_accumulators = engines_that([](const EngineTraits& t) { return t.accumulates_itself && !(t.reduces_to_owners && t.gathers_weights); });
const std::vector<std::string_view> host_accumulators = engines_that([](const EngineTraits& t) { return t.offloads && t.reduces_every_backward; });
const std::vector<std::string_view> sharded_weights = engines_that([](const EngineTraits& t) { return t.reduces_to_owners && !t.gathers_weights; });
const std::vector<std::string_view> owners_on_the_device = engines_that([](const EngineTraits& t) { return t.reduces_to_owners && !t.offloads; });

}  // namespace gradledger::search
