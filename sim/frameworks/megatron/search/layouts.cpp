// Layouts and schedules from a seed.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "sim/frameworks/loop_drawing.h"
#include "sim/frameworks/megatron/events.h"
#include "sim/frameworks/megatron/schedules.h"
#include "sim/frameworks/megatron/search/parts.h"

namespace gradledger::megatron {
namespace {

Parameter parameter(std::string name, std::uint64_t numel, std::uint32_t stage) {
  Parameter out;
  out.name = std::move(name);
  out.numel = numel;
  out.pipeline_stage = stage;
  return out;
}

class Layout {
 public:
  Layout(Draws& draws, const Swarm& swarm, Scenario& out) : draws_(draws), swarm_(swarm), out_(out) {}

  void draw() {
    more_stages();
    const std::uint32_t stages = out_.engine.pipeline_stages;
    std::uint32_t left = out_.world_size / stages;
    const std::uint32_t tensor = left % 2 == 0 && swarm_.often(tensor_parallel, draws_) ? (left % 4 == 0 && draws_.one_in(4) ? 4 : 2) : 1;
    left /= tensor;
    if (tensor == 1 && (stages == 1 || !swarm_.takes(laid_out, draws_))) return;
    std::map<std::string, std::uint32_t> sizes;
    if (tensor > 1) sizes["tp"] = tensor;
    if (stages > 1) sizes["pp"] = stages;
    if (left % 2 == 0 && swarm_.takes(context_parallel, draws_)) sizes["cp"] = 2;
    const std::uint32_t over = tensor > 1 && has_experts() && draws_.one_in(2) ? 1 : tensor;  // ranks that cut an expert
    const bool divided = has_experts() && out_.engine.expert_parallel_size > 1 && tensor * left % (over * out_.engine.expert_parallel_size) == 0;
    if (divided) sizes["ep"] = out_.engine.expert_parallel_size;
    if (divided && over != tensor) sizes["etp"] = over;
    // Megatron's order, that of --use-tp-pp-dp-mapping, and one in which ranks that meet are no neighbours.
    std::string order(draws_.of<std::string_view>({"", "", "tp-cp-ep-pp-dp", "pp-dp-cp-tp"}));
    if (divided && stages > 1) order.clear();  // Megatron refuses others whose stages would lie elsewhere for experts
    if (divided && order == "pp-dp-cp-tp") order = "pp-dp-ep-cp-tp";
    out_.layout = RankLayout::of(order, sizes, out_.world_size).value();
    if (divided) experts_of_later_stages();
    else without_experts();
    if (tensor > 1) share(tensor, over);
  }

 private:
  bool has_experts() const {
    return std::any_of(out_.parameters.begin(), out_.parameters.end(), [](const Parameter& p) { return p.expert && p.has_gradient(); });
  }

  void without_experts() {
    std::erase_if(out_.parameters, [](const Parameter& p) { return p.expert.has_value(); });
    out_.engine.expert_parallel_size = 1;
  }

  // Those that were drawn are of the first stage.
  void experts_of_later_stages() {
    const std::vector<Parameter> drawn = out_.parameters;
    for (std::uint32_t stage = 1; stage < out_.engine.pipeline_stages; ++stage)
      for (const Parameter& p : drawn) {
        if (!p.expert) continue;
        Parameter& later = out_.parameters.emplace_back(p);
        later.name += "of" + std::to_string(stage);
        later.pipeline_stage = stage;
      }
  }

  void more_stages() {
    if (out_.engine.pipeline_stages != 2 || out_.world_size % 4 != 0 || !draws_.one_in(4)) return;
    out_.engine.pipeline_stages = 4;
    for (const std::uint32_t stage : {2u, 3u}) out_.parameters.push_back(parameter("later" + std::to_string(stage), draws_.between(1, 12), stage));
  }

  // A weight of a layer that is cut; a norm's under sequence parallelism; a copy whose ranks saw different data; one that every rank computes alike. Ranks
  // that have one gradient together use it in the same micro-batches.
  void share(std::uint32_t ranks, std::uint32_t of_experts) {
    MegatronConfig& config = megatron_config(out_);
    std::vector<Parameter> shared;
    for (Parameter& p : out_.parameters) {
      p.used_by.reset();
      Attributes attributes;
      std::uint32_t parts = 1;
      const bool expert = p.expert.has_value();
      // A weight of a parallel layer has the attribute where its ranks are not cut, too.
      if (expert) attributes.tensor_model_parallel = true, parts = of_experts;
      switch (expert || !p.trainable ? 4 : draws_.below(5)) {
        case 0:
        case 1: attributes.tensor_model_parallel = true, parts = ranks; break;
        case 2: attributes.sequence_parallel = true, p.summed_over = "tp"; break;
        case 3: attributes.average_gradients_across_tp_domain = true, p.averaged_over = "tp"; break;
        default: break;
      }
      if (attributes.sequence_parallel) config.model.sequence_parallel = true;
      if (!(attributes == Attributes{})) config.parameters[p.name] = attributes;
      for (std::uint32_t number = 0; number < parts; ++number) {
        if (parts > 1) p.part = ParameterPart{expert ? "etp" : "tp", number, parts};
        shared.push_back(p);
      }
    }
    out_.parameters = std::move(shared);
  }

  Draws& draws_;
  const Swarm& swarm_;
  Scenario& out_;
};

// A world of so many ranks, which lie by these sizes, and hold nothing yet.
void lay_anew(Scenario& out, std::uint32_t ranks, const std::map<std::string, std::uint32_t>& sizes) {
  const auto size = [&](const char* name) { return sizes.contains(name) ? sizes.at(name) : 1u; };
  out.world_size = ranks;
  out.groups.clear();
  out.engine.param_groups.clear();
  out.engine.pipeline_stages = size("pp");
  out.engine.expert_parallel_size = size("ep");
  out.layout = RankLayout::of("", sizes, ranks).value();
  out.parameters.clear();
  MegatronConfig& config = megatron_config(out);
  config.parameters.clear();
  config.schedule.reset();
  config.model = {};
  config.ddp.num_distributed_optimizer_instances = 1;
}

// Two chunks, each with a parameter that is trained on every stage, and used in each of its backwards.
void draw_chunks(Draws& draws, Scenario& out) {
  ScheduleOptions& schedule = *megatron_config(out).schedule;
  const std::uint32_t stages = out.engine.pipeline_stages;
  schedule.model_chunks.resize(2);
  std::vector<std::uint32_t> trained(std::size_t{2} * stages);
  for (Parameter& p : out.parameters) {
    p.used_by.reset();
    if (p.part && p.part->number > 0) continue;
    const std::uint32_t chunk = draws.below(2);
    schedule.model_chunks[chunk].push_back(p.name);
    trained[chunk * stages + p.pipeline_stage] += p.has_gradient();
  }
  for (std::uint32_t chunk = 0; chunk < 2; ++chunk)
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      if (trained[chunk * stages + stage] > 0) continue;
      std::string name = "chunk";
      name += std::to_string(chunk) + "of" + std::to_string(stage);
      schedule.model_chunks[chunk].push_back(name);
      out.parameters.push_back(parameter(std::move(name), draws.between(1, 12), stage));
    }
  schedule.num_microbatches = stages * draws.of({1u, 2u});
  if (draws.one_in(3)) schedule.microbatch_group_size_per_vp_stage = schedule.num_microbatches;
  megatron_config(out).ddp.overlap_param_gather = false;
}

// Calls and what they run, as the configuration has it now.
bool rewrite_calls(Scenario& s, std::uint32_t backwards_before) {
  std::vector<ScriptItem> out;
  for (std::size_t i = 0; i < s.script.size(); ++i) {
    const ScriptItem& item = s.script[i];
    if (item.kind != ScriptKind::of_framework || item.event.name != schedule_event) {
      out.push_back(item);
      continue;
    }
    if (megatron_config(s).schedule)
      for (ScriptItem& its : schedule_call(s)) out.push_back(std::move(its));
    for (std::uint32_t b = 0; megatron_config(s).schedule && b < backwards_before && i + 1 < s.script.size() && s.script[i + 1].kind == ScriptKind::backward; ++b) ++i;
  }
  s.script = std::move(out);
  return !s.script.empty();
}

}  // namespace

void draw_layout(Draws& draws, const Swarm& swarm, Scenario& out) { Layout(draws, swarm, out).draw(); }

void tie_stages(Scenario& out) {
  lay_anew(out, 4, {{"pp", 2}});
  out.parameters = {parameter("tied", 16, 0), parameter("first", 16, 0), parameter("last", 16, 1)};
  megatron_config(out).parameters["tied"] = {.shared_embedding = true, .shared = true};
}

void share_sequence(Scenario& out) {
  lay_anew(out, 4, {{"tp", 2}});
  out.parameters = {parameter("norm", 16, 0), parameter("bias", 16, 0)};
  out.parameters.front().summed_over = "tp";
  megatron_config(out).parameters["norm"] = {.sequence_parallel = true};
  megatron_config(out).model.sequence_parallel = true;
}

void divide_experts(Scenario& out) {
  lay_anew(out, 8, {{"tp", 2}, {"ep", 2}});
  out.parameters = {parameter("dense", 16, 0)};
  for (std::uint32_t expert = 0; expert < 2; ++expert)
    for (std::uint32_t number = 0; number < 2; ++number) {
      Parameter& p = out.parameters.emplace_back(parameter("expert" + std::to_string(expert), 8, 0));
      p.expert = expert;
      p.part = ParameterPart{"etp", number, 2};
      megatron_config(out).parameters[p.name] = {.tensor_model_parallel = true};
    }
}

void draw_schedule(Draws& draws, const Swarm& swarm, Scenario& out) {
  MegatronConfig& config = megatron_config(out);
  config.schedule->grad_sync_func = config.ddp.overlap_grad_reduce && swarm.often(aligned, draws);
  if (out.engine.pipeline_stages > 1 && swarm.often(model_chunks, draws)) draw_chunks(draws, out);
}

std::vector<ScriptItem> schedule_call(const Scenario& s) {
  const ScheduleOptions& schedule = *megatron_config(s).schedule;
  std::vector<ScriptItem> out{event_item(schedule_event)};
  for (std::uint32_t number = 0; number < schedule.backwards(); ++number) {
    ScriptItem& backward = out.emplace_back(loop_item(ScriptKind::backward));
    if (!schedule.interleaved()) continue;
    const std::uint32_t chunk = scheduled_backward(schedule, s.engine.pipeline_stages, number).chunk;
    for (const Parameter& p : s.parameters)
      if (p.has_gradient() && (!p.part || p.part->number == 0) && schedule.chunk_of(p.name) == chunk) backward.uses.push_back(p.name);
  }
  return out;
}

bool without_schedule(Scenario& s) {
  if (!megatron_config(s).schedule) return false;
  megatron_config(s).schedule.reset();
  return rewrite_calls(s, 0);
}

bool without_chunks(Scenario& s) {
  std::optional<ScheduleOptions>& schedule = megatron_config(s).schedule;
  if (!schedule || !schedule->interleaved()) return false;
  const std::uint32_t before = schedule->backwards();
  schedule->model_chunks.clear();
  schedule->microbatch_group_size_per_vp_stage.reset();
  return rewrite_calls(s, before);
}

bool fewest_micro_batches(Scenario& s) {
  std::optional<ScheduleOptions>& schedule = megatron_config(s).schedule;
  const std::uint32_t fewest = schedule && schedule->interleaved() ? s.engine.pipeline_stages : 1;
  if (!schedule || schedule->num_microbatches <= fewest) return false;
  const std::uint32_t before = schedule->backwards();
  schedule->num_microbatches = fewest;
  schedule->microbatch_group_size_per_vp_stage.reset();
  return rewrite_calls(s, before);
}

bool without_grad_sync_func(Scenario& s) {
  std::optional<ScheduleOptions>& schedule = megatron_config(s).schedule;
  return schedule && std::exchange(schedule->grad_sync_func, false);
}

}  // namespace gradledger::megatron
