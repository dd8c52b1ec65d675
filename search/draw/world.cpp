#include "search/draw/world.h"

#include <algorithm>
#include <string>
#include <vector>

#include "sim/frameworks/search_space.h"
#include "sim/scenario/layout.h"

namespace gradledger::search {
namespace {

class World {
 public:
  World(const Profile& profile, Draws& draws, const Swarm& swarm, Scenario& out) : profile_(profile), draws_(draws), swarm_(swarm), out_(out) {}

  void draw() {
    out_.world_size = world_size();
    engine();
    parameters();
    search_space_of(out_).draw_options(draws_, swarm_, out_);
  }

 private:
  bool takes(Feature feature) const { return swarm_.takes(feature, draws_); }

  // Powers of two mostly, so that coefficients are exact.
  std::uint32_t world_size() {
    if (draws_.one_in(12)) return draws_.between(1, profile_.world_max);
    std::uint32_t size = 1;
    while (size * 2 <= profile_.world_max && !draws_.one_in(4)) size *= 2;
    return size;
  }

  void engine() {
    out_.engine.as_of = profile_.as_of;
    std::vector<const Variant*> among = profile_.variants;
    if (among.empty())
      for (const Variant& variant : variants()) among.push_back(&variant);
    search_space_of(out_).draw_engine(among, draws_, swarm_, out_);
  }

  static Parameter parameter(std::string name, std::uint64_t numel) {
    Parameter out;
    out.name = std::move(name);
    out.numel = numel;
    return out;
  }

  std::uint64_t numel() { return draws_.one_in(8) ? draws_.between(1, 3) : draws_.between(1, profile_.numel_max); }

  void parameters() {
    const std::uint32_t count = takes(Feature::many_parameters) ? draws_.between(2, std::max(2u, profile_.parameters_max)) : draws_.between(1, 2);
    for (std::uint32_t i = 0; i < count; ++i) {
      Parameter p = parameter("p" + std::to_string(i), numel());
      if (i > 0 && draws_.one_in(24) && !profile_.as_documented) p.numel = 0;  // stage 3 raises there
      if (i > 0 && takes(Feature::frozen)) p.trainable = false;
      if (takes(Feature::side_stream)) p.on_side_stream = true;
      if (takes(Feature::hooked_outputs)) p.hooked_outputs = draws_.of({2u, 0u, 3u});
      if (p.trainable && takes(Feature::used_by_some)) p.used_by = condition();
      out_.parameters.push_back(std::move(p));
    }
    if (takes(Feature::tied)) {
      out_.parameters.push_back(parameter("tied", out_.parameters[0].numel));
      out_.parameters.back().tied_to = 0;
    }
    layout();
    if (out_.parameters.size() > 1 && takes(Feature::groups)) groups();
  }

  std::optional<Predicate> condition() {
    const auto text = draws_.of<std::string_view>({"micro_batch != 0", "micro_batch != 1", "micro_batch < 1", "rank != 0", "rank < 1", "step != 0"});
    const auto parsed = Predicate::parse(text, "");
    return parsed ? std::optional(*parsed) : std::nullopt;
  }

  // Experts, pipelines and sequences share the world out; where that does not come out even, everything is as it was.
  void layout() {
    const Scenario before = out_;
    if (out_.world_size % 2 == 0 && takes(Feature::pipeline)) {
      out_.engine.pipeline_stages = 2;
      out_.parameters.push_back(parameter("later", numel()));
      out_.parameters.back().pipeline_stage = 1;
    }
    if (takes(Feature::sequence_parallel)) out_.engine.sequence_parallel_size = 2;
    else if (takes(Feature::expert_parallel)) {
      out_.engine.expert_parallel_size = draws_.one_in(3) ? 1 : 2;
      const std::uint64_t of_each = numel();
      for (std::uint32_t expert = 0; expert < 2; ++expert) {
        out_.parameters.push_back(parameter("expert" + std::to_string(expert), of_each));
        out_.parameters.back().expert = expert;
      }
    }
    if (layout_problem(out_)) out_ = before;
  }

  void groups() {
    OptimizerGroup one, other;
    for (std::uint32_t p = 0; p < out_.parameters.size(); ++p)
      if (out_.parameters[p].has_gradient()) (one.parameters.empty() || (!other.parameters.empty() && draws_.one_in(2)) ? one : other).parameters.push_back(p);
    if (other.parameters.empty()) return;
    if (draws_.one_in(2)) std::swap(one, other);
    one.learning_rate = 0.5;
    out_.engine.param_groups = {one, other};
  }

  const Profile& profile_;
  Draws& draws_;
  const Swarm& swarm_;
  Scenario& out_;
};

}  // namespace

void draw_world(const Profile& profile, Draws& draws, const Swarm& swarm, Scenario& out) { World(profile, draws, swarm, out).draw(); }

}  // namespace gradledger::search
