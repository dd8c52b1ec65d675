#include "search/shrink/shape.h"

#include <fmt/format.h>

#include "search/campaign/campaign.h"
#include "sim/base/hash.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::search {
namespace {

std::string word_for(const ScriptItem& item);

std::string words_for(const std::vector<ScriptItem>& items) {
  std::string out;
  for (const ScriptItem& item : items) out += (out.empty() ? "" : " ") + word_for(item);
  return out;
}

std::string plain_word(const ScriptItem& item) {
  switch (item.kind) {
    case ScriptKind::forward: return "forward";
    case ScriptKind::backward: return item.direct ? "loss.backward" : "backward";
    case ScriptKind::set_boundary: return item.boundary ? "boundary(T)" : "boundary(F)";
    case ScriptKind::step: return "step";
    case ScriptKind::engine_zero_grad: return "engine.zero_grad";
    case ScriptKind::optimizer_zero_grad: return "optimizer.zero_grad";
    case ScriptKind::raise: return "raise";
    case ScriptKind::no_sync: return "no_sync{ " + words_for(item.items) + " }";
    case ScriptKind::coalesce: return "coalesce{ " + words_for(item.items) + " }";
    case ScriptKind::repeat: return fmt::format("{}x{{ {} }}", item.times, words_for(item.items));
    case ScriptKind::overflow: return "overflow";
    case ScriptKind::set_gradient: return item.local ? "set_local_gradient" : "set_gradient";
    case ScriptKind::scale_gradients: return "scale_gradients";
    case ScriptKind::clip: return "clip";
    case ScriptKind::all_reduce: return "all_reduce";
    case ScriptKind::finalize: return "finalize";
    case ScriptKind::save: return "save";
    case ScriptKind::restore: return "restore";
    case ScriptKind::unscale: return "unscale";
    case ScriptKind::of_framework: return item.event.name;
  }
  return "";
}

std::string word_for(const ScriptItem& item) {
  std::string out = plain_word(item);
  if (item.of) out += fmt::format("(of {})", *item.of);
  if (item.phases > 1) out += fmt::format("({} phases)", item.phases);
  if (item.raises_after) out += "(raises)";
  if (item.kind == ScriptKind::backward && !item.uses.empty()) out += "(uses)";
  if (!item.order.empty()) out += "(order)";
  if (!item.scale_wrt_gas) out += "(unscaled)";
  if (!item.ranks.empty()) out += "@some";
  return item.micro_batches > 1 ? fmt::format("{}x{}", out, item.micro_batches) : out;
}

}  // namespace

std::string shape_of(const Scenario& scenario) { return fmt::format("{} rank{}: {}", scenario.world_size, scenario.world_size == 1 ? "" : "s", words_for(scenario.script)); }

bool is_part_of(const std::vector<ScriptItem>& shorter, const std::vector<ScriptItem>& longer) {
  std::size_t at = 0;
  for (const ScriptItem& item : longer) at += at < shorter.size() && word_for(shorter[at]) == word_for(item);
  return at == shorter.size();
}

std::string short_hash(const std::string& text) {
  TraceHash hash;
  hash.add_bytes(std::as_bytes(std::span(text)));
  return fmt::format("{:08x}", hash.value() >> 32);
}

std::string engine_of(const Scenario& scenario) {
  const SearchSpace* space = framework_of(scenario).search_space();
  return space ? space->variant_of(scenario) : std::string(engine_name(scenario));
}

}  // namespace gradledger::search
