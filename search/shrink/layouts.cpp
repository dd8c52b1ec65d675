#include "search/shrink/layouts.h"

#include <utility>
#include <vector>

namespace gradledger::search {
namespace {

// What they said of a dimension that is gone.
void made_whole(Scenario& s, const std::string& dimension) {
  std::vector<Parameter> whole;
  for (Parameter& p : s.parameters) {
    if (p.part && p.part->over == dimension && p.part->number > 0) continue;
    if (p.part && p.part->over == dimension) p.part.reset();
    if (p.summed_over == dimension) p.summed_over.clear();
    if (p.averaged_over == dimension) p.averaged_over.clear();
    if (dimension == "pp") p.pipeline_stage = 0;
    whole.push_back(std::move(p));
  }
  s.parameters = std::move(whole);
  if (dimension == "pp") s.engine.pipeline_stages = 1;
}

}  // namespace

bool lay_out(Scenario& s, const std::map<std::string, std::uint32_t>& sizes, std::uint32_t world_size) {
  auto layout = RankLayout::of(s.layout->order(), sizes, world_size);
  if (!layout || *layout == *s.layout) return false;
  s.layout = std::move(*layout);
  return true;
}

bool without_dimension(Scenario& s, const std::string& dimension) {
  if (!s.layout || !s.layout->stated().contains(dimension)) return false;
  std::map<std::string, std::uint32_t> sizes = s.layout->stated();
  sizes.erase(dimension);
  sizes.erase("dp");
  if (!lay_out(s, sizes, s.world_size)) return false;
  made_whole(s, dimension);
  return true;
}

bool drop_layout(Scenario& s) {
  if (!s.layout) return false;
  for (const char* dimension : {"tp", "etp", "cp", "sp", "dp", "pp"}) made_whole(s, dimension);
  s.engine.expert_parallel_size = 1;
  s.layout.reset();
  return true;
}

bool in_the_usual_order(Scenario& s) {
  if (!s.layout || s.layout->order().empty()) return false;
  auto layout = RankLayout::of("", s.layout->stated(), s.world_size);
  if (!layout) return false;
  s.layout = std::move(*layout);
  return true;
}

}  // namespace gradledger::search
