#include "search/draw/world.h"

#include <algorithm>
#include <array>
#include <string>

#include "sim/engine/engine.h"
#include "sim/frameworks/deepspeed/settings.h"
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
    if (deepspeed_config(out_).zero.stage > 0) partitions();
    reduction();
    step();
  }

 private:
  bool takes(Feature feature) const { return swarm_.takes(feature, draws_); }
  // Of what a case has or has not, once: dtypes that differ from each other need several at a time.
  bool often(Feature feature) const { return swarm_.on(feature) && (takes(feature) || draws_.one_in(2)); }
  DeepSpeedConfig& config() { return deepspeed_config(out_); }

  // Powers of two mostly, so that coefficients are exact.
  std::uint32_t world_size() {
    if (draws_.one_in(12)) return draws_.between(1, profile_.world_max);
    std::uint32_t size = 1;
    while (size * 2 <= profile_.world_max && !draws_.one_in(4)) size *= 2;
    return size;
  }

  void engine() {
    out_.engine.as_of = profile_.as_of;
    const auto all = variants();
    if (often(Feature::sixteen_bits)) set_model_dtype(out_, draws_.of({Dtype::bfloat16, Dtype::bfloat16, Dtype::float16}));
    if (config().fp16.enabled) loss_scale();
    if (often(Feature::wide_accumulation)) config().grad_accum_dtype = draws_.one_in(4) ? out_.model_dtype : Dtype::float32;
    const Variant& variant = profile_.variants.empty() ? all[draws_.below(static_cast<std::uint32_t>(all.size()))]
                                                       : *profile_.variants[draws_.below(static_cast<std::uint32_t>(profile_.variants.size()))];
    variant.apply(out_);
    if (takes(Feature::immediate_update)) config().bf16.immediate_grad_update = config().bf16.enabled;
  }

  void loss_scale() {
    Fp16Config& fp16 = config().fp16;
    if (draws_.one_in(2)) fp16.loss_scale = draws_.of({1.0, 8.0, 1024.0});
    else fp16.initial_scale_power = draws_.of({2u, 8u});
    if (draws_.one_in(4)) fp16.loss_scale_window = draws_.of({1u, 2u});
    if (draws_.one_in(4)) fp16.hysteresis = 1;
  }

  static Parameter parameter(std::string name, std::uint32_t numel) {
    Parameter out;
    out.name = std::move(name);
    out.numel = numel;
    return out;
  }

  std::uint32_t numel() { return draws_.one_in(8) ? draws_.between(1, 3) : draws_.between(1, profile_.numel_max); }

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
      const std::uint32_t of_each = numel();
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

  void partitions() {
    ZeroConfig& zero = config().zero;
    if (takes(Feature::small_buckets)) zero.reduce_bucket_size = draws_.of({8u, 16u, 24u, 40u});
    if (takes(Feature::no_contiguous)) zero.contiguous_gradients = false;
    if (takes(Feature::no_reduce_scatter)) zero.reduce_scatter = false;
    if (draws_.one_in(8)) zero.use_multi_rank_bucket_allreduce = false;
    if (takes(Feature::overlap)) zero.overlap_comm = true;
    else if (zero.stage == 3 && draws_.one_in(2)) zero.overlap_comm = false;
    if (draws_.one_in(12)) zero.round_robin_gradients = true;
    if (zero.stage == 3 && takes(Feature::sub_groups)) zero.sub_group_size = draws_.of({4u, 16u});
    if (zero.stage == 3 && draws_.one_in(12)) zero.offload_param = OffloadDevice::cpu;
    if (config().offloads_optimizer() && takes(Feature::pinned)) zero.offload_pin_memory = true;
  }

  void reduction() {
    if (often(Feature::wire_dtype)) config().communication_data_type = draws_.of({Dtype::float32, Dtype::bfloat16});
    if (takes(Feature::predivide)) {
      config().prescale_gradients = draws_.one_in(2);
      config().gradient_predivide_factor = draws_.of({1.0, 2.0, 4.0});
    }
    if (takes(Feature::summed)) {
      config().gradient_allreduce_op = AllreduceOp::sum;
      out_.contract.average_over = "none";
    }
    if (takes(Feature::unmanaged)) config().managed_gradient_accumulation = false;
  }

  void step() {
    config().gradient_clipping = takes(Feature::clipping) ? draws_.of({0.5, 0.01, 4.0}) : 0.0;
    if (takes(Feature::adam)) {
      out_.engine.optimizer.type = draws_.of({OptimizerType::adam, OptimizerType::adamw});
      out_.engine.optimizer.learning_rate = 0.125;
      if (draws_.one_in(3)) out_.engine.optimizer.weight_decay = 0.25;
    }
  }

  const Profile& profile_;
  Draws& draws_;
  const Swarm& swarm_;
  Scenario& out_;
};

}  // namespace

void draw_world(const Profile& profile, Draws& draws, const Swarm& swarm, Scenario& out) { World(profile, draws, swarm, out).draw(); }

}  // namespace gradledger::search
