#include "sim/frameworks/megatron/user_ranks.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "sim/frameworks/megatron/user_layout.h"

namespace gradledger::megatron {
namespace {

using nlohmann::json;

constexpr std::uint64_t micro_batches_max = 1024;

class Ranks {
 public:
  Ranks(const AskedFor& given, const UserConfigHints& hints, UserConfig& out) : given_(given), hints_(hints), out_(out) {}

  void take() {
    ranks();
    if (out_.errors.empty()) gather_in_step();
  }

 private:
  // Megatron-LM's own: megatron/training/arguments.py, validate_args, at core_v0.19.0.
  AskedLayout asked() {
    AskedLayout out;
    out.tensor = given_.size("tensor_model_parallel_size");
    out.context = given_.size("context_parallel_size");
    out.stages = given_.size("pipeline_model_parallel_size");
    out.experts = std::max(given_.counts.contains("num_experts") ? given_.size("num_experts") : 0, given_.counts.contains("num_moe_experts") ? given_.size("num_moe_experts") : 0);
    out.experts_over = out.experts > 0 ? given_.size("expert_model_parallel_size") : 1;
    out.expert_tensor = out.experts == 0 ? 1 : given_.counts.contains("expert_tensor_parallel_size") ? given_.size("expert_tensor_parallel_size") : out.tensor;
    out.chunks = chunks(out.stages);
    out.instances = out_.config.value(json::json_pointer("/ddp/num_distributed_optimizer_instances"), std::uint64_t{1});
    out.stages_before_data = given_.set("use_tp_pp_dp_mapping");
    out.sequence_parallel = given_.set("sequence_parallel") && out.tensor > 1;
    out.tied = !given_.set("untie_embeddings_and_output_weights");
    return out;
  }

  // Of a stage: said, or by the layers of each.
  std::uint64_t chunks(std::uint64_t stages) {
    if (given_.counts.contains("num_virtual_stages_per_pipeline_rank")) return given_.size("num_virtual_stages_per_pipeline_rank");
    if (!given_.counts.contains("num_layers_per_virtual_pipeline_stage")) return 1;
    const std::uint64_t of_each = given_.size("num_layers_per_virtual_pipeline_stage"), layers = given_.counts.contains("num_layers") ? given_.size("num_layers") : 0;
    if (layers > 0 && layers % stages == 0 && layers / stages % of_each == 0) return layers / stages / of_each;
    out_.errors.push_back({"/num_layers_per_virtual_pipeline_stage",
                           layers == 0
                               ? "is given, and num_layers is no number; expected both"
                               : fmt::format("is {}, which does not divide the {} layers of {} stages; expected a divisor of those of one stage", of_each, layers, stages)});
    return 1;
  }

  // All that the arguments ask for, or what a user who has a script of their own can be told of: ranks that hold the same weights.
  void ranks() {
    AskedLayout layout = asked();
    if (layout.model() > 1'000'000)
      return out_.errors.push_back({"/tensor_model_parallel_size", fmt::format("makes {} parts of the model with the other sizes; expected fewer", layout.model())});
    if (!ranks_of(layout)) return;
    const std::uint64_t data = layout.data();
    batch(data);
    if (!out_.errors.empty()) return;
    const bool without_chunks = interleaves(layout);
    if (without_chunks) layout.chunks = 1;
    if (hints_.parameters.empty()) return of_one_part(layout);
    const auto laid = lay_out(layout, hints_);
    if (!laid) return out_.errors.push_back(laid.error());
    out_.ranks = static_cast<std::uint32_t>(laid->ranks);
    out_.layout = laid->layout;
    out_.groups = laid->groups;
    if (layout.has_parts()) out_.parameters = laid->parameters;
    if (!laid->attributes.empty()) out_.config["parameters"] = laid->attributes;
    if (layout.sequence_parallel) out_.config["model"]["sequence_parallel"] = true;
    out_.not_judged.insert(out_.not_judged.end(), laid->not_judged.begin(), laid->not_judged.end());
    out_.not_modelled.insert(out_.not_modelled.end(), laid->not_modelled.begin(), laid->not_modelled.end());
    schedule(layout, laid->model_chunks);
    say_what_is_open(layout);
  }

  bool ranks_of(AskedLayout& layout) {
    const std::uint64_t model = layout.model(), experts = layout.expert_tensor * layout.experts_over;
    const auto fits = [&](std::uint64_t all) { return all % model == 0 && all / layout.stages % experts == 0; };
    layout.ranks = hints_.ranks;
    if (!hints_.ranks_are_stated && (!fits(layout.ranks) || layout.ranks / model < 2)) {
      layout.ranks = 2 * model;
      while (!fits(layout.ranks) && layout.ranks < 1'000'000) layout.ranks += model;
      out_.filled.push_back({"ranks", std::to_string(layout.ranks), "nobody says how many: --ranks"});
    }
    if (fits(layout.ranks)) return true;
    if (layout.ranks % model != 0)
      out_.errors.push_back({"/tensor_model_parallel_size",
                             fmt::format("times pipeline and context ranks is {}, which does not divide the {} ranks (--ranks); expected a divisor", model, layout.ranks)});
    else
      out_.errors.push_back(
          {"/expert_model_parallel_size",
           fmt::format("times expert_tensor_parallel_size is {}, which does not divide the {} ranks of a stage; expected a divisor", experts, layout.ranks / layout.stages)});
    return false;
  }

  // A script of somebody's own says itself what its ranks hold.
  void of_one_part(const AskedLayout& layout) {
    const std::uint64_t replayed = layout.data() * layout.context;
    if (replayed != layout.ranks) {
      out_.ranks = static_cast<std::uint32_t>(replayed);
      out_.not_judged.push_back(fmt::format("what ranks of other parts of the model do: {} of {} ranks are replayed, which hold the same weights", replayed, layout.ranks));
    }
    if (layout.context == 1) return;
    out_.groups["cp"] = json::array();
    for (std::uint64_t first = 0; first < replayed; first += layout.context) {
      json group = json::array();
      for (std::uint64_t r = first; r < first + layout.context; ++r) group.push_back(r);
      out_.groups["cp"].push_back(std::move(group));
    }
  }

  // Whether a schedule with virtual stages is asked for of which there is no model.
  bool interleaves(const AskedLayout& layout) {
    if (layout.chunks == 1) return false;
    const bool per_token = out_.config.value(json::json_pointer("/model/calculate_per_token_loss"), false);
    if (per_token) out_.not_modelled.emplace_back("/calculate_per_token_loss: losses that are sums over tokens in an interleaved schedule");
    else if (layout.stages == 1) out_.errors.push_back({"/pipeline_model_parallel_size", "is 1, and virtual stages are given; expected a pipeline of more stages"});
    return per_token || layout.stages == 1;
  }

  // With overlap_grad_reduce Megatron-LM gives the schedule a function that begins reductions: training.py, train, at core_v0.8.0 to core_v0.19.0.
  void schedule(const AskedLayout& layout, const json& model_chunks) {
    json out = json::object();
    const bool aligns = !given_.set("no_align_grad_reduce") && !given_.set("no_delay_grad_reduce");
    if (layout.stages > 1 && aligns && out_.config.value(json::json_pointer("/ddp/overlap_grad_reduce"), false)) out["grad_sync_func"] = true;
    if (model_chunks.is_array()) out["model_chunks"] = model_chunks;
    if (model_chunks.is_array() && given_.counts.contains("microbatch_group_size_per_virtual_pipeline_stage"))
      out["microbatch_group_size_per_vp_stage"] = given_.size("microbatch_group_size_per_virtual_pipeline_stage");
    if (layout.stages > 1) out_.config["schedule"] = std::move(out);
  }

  void say_what_is_open(const AskedLayout& layout) {
    if (layout.stages > 1) out_.not_judged.emplace_back("what pipeline stages send each other");
    if (layout.stages > 1 && layout.tied && (!hints_.stand_in || layout.chunks > 1))
      out_.not_judged.emplace_back("the embedding that first and last stage share (untie_embeddings_and_output_weights is not given): each has weights of its own here");
    if (layout.experts > 0) out_.not_judged.emplace_back("losses of routers, and experts that no token of a micro-batch goes to");
    const bool guessed = layout.tensor > 1 && !hints_.stand_in;
    if (guessed) out_.notes.emplace_back("Norms, biases and routers are taken as copies of tensor-parallel ranks, all other parameters as cut, by their names.");
  }

  // Gathers of weights in the next forward have no model with virtual stages.
  void gather_in_step() {
    const json::json_pointer gather("/ddp/overlap_param_gather");
    if (!out_.config.contains(json::json_pointer("/schedule/model_chunks")) || !out_.config.contains(gather)) return;
    out_.config["ddp"].erase("overlap_param_gather");
    out_.not_judged.emplace_back("weights that are gathered in the next forward of a chunk (overlap_param_gather): here a step gathers them");
  }

  // core/num_microbatches_calculator.py.
  void batch(std::uint64_t data) {
    const bool micro = given_.counts.contains("micro_batch_size"), global = given_.counts.contains("global_batch_size");
    if (!micro && !global) return;
    if (!micro) return out_.errors.push_back({"/global_batch_size", "is given without micro_batch_size, which Megatron-LM asks for; expected both"});
    const std::uint64_t together = given_.size("micro_batch_size") * data;
    if (!global) {
      out_.micro_batches = 1;
      return out_.filled.push_back({"/global_batch_size", std::to_string(together), "Megatron-LM's own: one micro-batch of each data-parallel rank"});
    }
    const std::uint64_t batch = given_.size("global_batch_size");
    if (batch % together != 0)
      return out_.errors.push_back({"/global_batch_size", fmt::format("is {}, which is not divisible by micro_batch_size {} times {} data-parallel ranks; expected a multiple",
                                                                      batch, given_.size("micro_batch_size"), data)});
    if (batch / together > micro_batches_max)
      return out_.errors.push_back({"/global_batch_size", fmt::format("makes {} micro-batches of a window; expected at most {}", batch / together, micro_batches_max)});
    out_.micro_batches = static_cast<std::uint32_t>(batch / together);
  }

  const AskedFor& given_;
  const UserConfigHints& hints_;
  UserConfig& out_;
};

}  // namespace

void take_ranks(const AskedFor& given, const UserConfigHints& hints, UserConfig& out) { Ranks(given, hints, out).take(); }

}  // namespace gradledger::megatron
