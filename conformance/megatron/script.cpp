#include "conformance/megatron/script.h"

#include <algorithm>
#include <memory>
#include <set>

#include "sim/frameworks/megatron/config_json.h"
#include "sim/frameworks/megatron/events.h"
#include "sim/frameworks/megatron/parallel_groups.h"
#include "sim/frameworks/megatron/schedules.h"
#include "sim/frameworks/megatron/behaviour.h"
#include "sim/numeric/dtype_names.h"
#include "conformance/recording.h"

namespace gradledger::conform::megatron {
namespace {

using nlohmann::json;

struct Inexpressible {
  std::string why;
};

// Operations to items, each with the events that it becomes.
class Builder {
 public:
  Builder(const Run& run, Expressed& out) : run_(run), out_(out) {}

  void build() {
    blocks_.emplace_back();
    for (const Field& op : Field(run_.operations, "/spec/ops").entries(limits::events_max)) {
      const std::uint32_t first = next_event_;
      add(op);
      out_.events.push_back({first, next_event_ - 1});
    }
    if (blocks_.size() != 1) throw Inexpressible{"a block that does not end"};
    out_.scenario.script = std::move(blocks_.front());
    for (auto& window : tokens_) pad(window);
    if (counts_tokens_) out_.scenario.tokens.table = std::move(tokens_);
  }

 private:
  void add(const Field& op) {
    const std::string& kind = op.at(0).text(limits::name_length_max);
    if (kind == "no_sync") return enter();
    if (kind == "end") return leave();
    if (kind == "zero") return put(of(ScriptKind::engine_zero_grad)), put(of(ScriptKind::optimizer_zero_grad));
    if (kind == "zero_buffer") return put(of(ScriptKind::engine_zero_grad));
    if (kind == "opt_zero_grad") return put(of(ScriptKind::optimizer_zero_grad));
    if (kind == "fb") return backward(op);
    if (kind == "finalize") return finalize(op);
    if (kind == "schedule") return schedule(op);
    if (kind == "forward_backward_func") return pipeline(op);
    if (kind == "start_grad_sync") return put(own(::gradledger::megatron::start_grad_sync_event));
    if (kind == "gather") return put(own(::gradledger::megatron::start_param_sync_event));
    if (kind != "step") throw Inexpressible{"the operation " + kind};
    put(of(ScriptKind::step));
    ++window_;
  }

  static ScriptItem of(ScriptKind kind) {
    ScriptItem item;
    item.kind = kind;
    return item;
  }

  static ScriptItem own(std::string_view name) {
    ScriptItem item = of(ScriptKind::of_framework);
    item.event.name = name;
    item.event.reduces = name == ::gradledger::megatron::finalize_event;
    return item;
  }

  void put(ScriptItem item) {
    ++next_event_;
    blocks_.back().push_back(std::move(item));
  }

  void enter() {
    ++next_event_;
    blocks_.emplace_back();
  }

  void leave() {
    if (blocks_.size() == 1) throw Inexpressible{"the end of a block that did not begin"};
    ScriptItem block = of(ScriptKind::no_sync);
    block.items = std::move(blocks_.back());
    blocks_.pop_back();
    blocks_.back().push_back(std::move(block));
    ++next_event_;
  }

  // [rank][micro-batch of the window]: none, until a count is known.
  std::vector<std::vector<std::uint32_t>>& window() {
    while (tokens_.size() <= window_) tokens_.emplace_back(run_.world);
    return tokens_[window_];
  }

  void run_micro_batch(std::uint32_t micro_batch, const json* use) {
    ScriptItem item = of(ScriptKind::backward);
    item.micro_batch = micro_batch;
    if (use)
      for (const Field& name : Field(*use, "/use").entries(run_.parameters.size())) item.uses.push_back(name.text(limits::name_length_max));
    for (auto& of_rank : window()) of_rank.push_back(0);
    put(std::move(item));
  }

  void backward(const Field& op) {
    const json* use = nullptr;
    if (op.json().size() > 2) {
      for (const auto& [key, value] : op.at(2).members())
        if (key != "use") throw Inexpressible{"the option " + key + " of a backward"};
      use = &op.at(2).at("use").json();
    }
    run_micro_batch(op.at(1).count(0, static_cast<std::uint32_t>(run_.gradients.size() - 1)), use);
  }

  // A count for each rank is that of its last micro-batch: what they add up to is what is divided by.
  void finalize(const Field& op) {
    if (!op.at(1).json().is_null()) {
      const std::vector<Field> counts = op.at(1).entries(run_.world);
      if (counts.size() != run_.world) op.at(1).fail("has not one count for each rank");
      for (std::size_t r = 0; r < counts.size(); ++r) {
        if (window()[r].empty()) throw Inexpressible{"tokens of a window without a backward"};
        window()[r].back() = counts[r].count(0, limits::tokens_max);
      }
      counts_tokens_ = true;
    }
    put(own(::gradledger::megatron::finalize_event));
  }

  // forward_backward_no_pipelining: all but the last micro-batch under no_sync, then finalize.
  void schedule(const Field& op) {
    const std::vector<Field> micro_batches = op.at(1).entries(limits::micro_batches_max);
    if (micro_batches.empty()) op.at(1).fail("is empty; expected at least one micro-batch");
    const bool counts = op.json().size() > 2;
    out_.config.schedule = ::gradledger::megatron::ScheduleOptions{static_cast<std::uint32_t>(micro_batches.size()),
                                                                   counts ? ::gradledger::megatron::LossReturns::sum_and_tokens : ::gradledger::megatron::LossReturns::mean};
    const auto number = [&](const Field& f) { return f.count(0, static_cast<std::uint32_t>(run_.gradients.size() - 1)); };
    enter();
    for (std::size_t m = 0; m + 1 < micro_batches.size(); ++m) run_micro_batch(number(micro_batches[m]), nullptr);
    leave();
    run_micro_batch(number(micro_batches.back()), nullptr);
    put(own(::gradledger::megatron::finalize_event));
    if (!counts) return;
    counts_tokens_ = true;
    for (std::uint32_t r = 0; r < run_.world; ++r)
      for (std::size_t m = 0; m < micro_batches.size(); ++m) window()[r][m] = op.at(2).at(r).at(m).count(0, limits::tokens_max);
  }

  // A schedule of a pipeline, of micro-batches from the first one on; the configuration says which.
  void pipeline(const Field& op) {
    using ::gradledger::megatron::ScheduleOptions;
    if (!out_.config.schedule) throw Inexpressible{"a pipeline's schedule without its options"};
    const ScheduleOptions& schedule = *out_.config.schedule;
    if (op.at(1).count(1, static_cast<std::uint32_t>(run_.gradients.size())) != schedule.num_microbatches) op.at(1).fail("is not /spec/config/schedule/num_microbatches");
    put(own(::gradledger::megatron::schedule_event));
    for (std::uint32_t number = 0; number < schedule.backwards(); ++number) {
      const auto due = ::gradledger::megatron::scheduled_backward(schedule, out_.scenario.engine.pipeline_stages, number);
      run_micro_batch(due.micro_batch, nullptr);
      if (schedule.interleaved()) blocks_.back().back().uses = schedule.model_chunks[due.chunk];
    }
    put(own(::gradledger::megatron::finalize_event));
  }

  // Every window has an entry for each of its micro-batches.
  void pad(std::vector<std::vector<std::uint32_t>>& window) const {
    for (auto& of_rank : window)
      if (of_rank.empty()) of_rank.push_back(0);
  }

  const Run& run_;
  Expressed& out_;
  std::uint32_t next_event_ = 0, window_ = 0;
  std::vector<std::vector<ScriptItem>> blocks_;  // the script, and what of the open blocks there is
  std::vector<std::vector<std::vector<std::uint32_t>>> tokens_;
  bool counts_tokens_ = false;
};

Dtype dtype_of(const std::string& name) {
  if (const auto dtype = floating_dtype_named(name)) return *dtype;
  throw Inexpressible{"parameters in " + name};
}

// Megatron's order of ranks: tensor-parallel ones are neighbours, then context-parallel, data-parallel (experts within them) and stages.
std::uint32_t size_of(const Run& run, const char* dimension) {
  const auto size = run.parallel.find(dimension);
  return size == run.parallel.end() ? 1 : size->second;
}

// A parameter of experts that each rank has its own of becomes one for each; what is used twice has its gradient twice.
class Model {
 public:
  Model(const Run& run, Expressed& out) : run_(run), out_(out) {}

  void build() {
    out_.names.resize(run_.world);
    const std::uint32_t shares = size_of(run_, "ep");
    out_.scenario.engine.expert_parallel_size = shares;
    if (run_.parallel.contains("pp")) out_.scenario.engine.pipeline_stages = run_.parallel.at("pp");
    std::vector<std::vector<std::vector<double>>> values(run_.gradients.size(), std::vector<std::vector<double>>(run_.world));
    std::size_t offset = 0;
    for (const Parameter& p : run_.parameters) {
      for (std::uint32_t e = 0; e < (p.expert ? shares : 1); ++e) add(p, e, shares, offset, values);
      offset += p.numel;
    }
    plant(values);
    out_.scenario.gradients.kind = GradientKind::values;
    out_.scenario.gradients.values = std::make_shared<GivenValues>(std::move(values));
  }

 private:
  void add(const Parameter& p, std::uint32_t expert, std::uint32_t shares, std::size_t offset, GivenValues& values) {
    const auto index = static_cast<std::uint32_t>(out_.scenario.parameters.size());
    ::gradledger::Parameter& it = out_.scenario.parameters.emplace_back();
    it.name = p.expert && shares > 1 ? p.name + std::to_string(expert) : p.name;
    it.numel = p.numel;
    it.trainable = !p.frozen;
    if (p.expert) it.expert = expert;
    if (p.stages.size() == 1) it.pipeline_stage = p.stages.front();
    for (std::uint32_t r = 0; r < run_.world; ++r) {
      const bool on_stage = p.stages.empty() || std::find(p.stages.begin(), p.stages.end(), r / (run_.world / size_of(run_, "pp"))) != p.stages.end();
      if (on_stage && (!p.expert || r / (size_of(run_, "tp") * size_of(run_, "cp")) % shares == expert)) out_.names[r][index] = p.name;
      for (std::size_t m = 0; m < values.size(); ++m)
        for (std::uint64_t i = 0; i < p.numel; ++i) values[m][r].push_back(run_.gradients[m][r][offset + i] * static_cast<double>(p.uses));
    }
    ::gradledger::megatron::Attributes& attributes = out_.config.parameters[it.name];
    for (const std::string& name : p.attributes) {
      attributes.sequence_parallel |= name == "sequence_parallel";
      attributes.tensor_model_parallel |= name == "tensor_model_parallel";
      attributes.average_gradients_across_tp_domain |= name == "average_gradients_across_tp_domain";
      attributes.shared_embedding |= name == "shared_embedding";
    }
  }

  // The first element of a gradient is another.
  void plant(GivenValues& values) const {
    if (!run_.plant) return;
    std::size_t offset = 0;
    bool found = false;
    for (const ::gradledger::Parameter& p : out_.scenario.parameters) {
      found = p.name == run_.plant->parameter;
      if (found) break;
      offset += p.numel;
    }
    if (!found) throw Inexpressible{"a value planted in the gradient of an expert that several ranks share"};
    for (std::uint32_t r = 0; r < run_.world; ++r)
      if (run_.plant->rank < 0 || static_cast<std::uint32_t>(run_.plant->rank) == r) values.at(run_.plant->micro_batch)[r].at(offset) = run_.plant->value;
  }

  const Run& run_;
  Expressed& out_;
};

// `count` ranks, `stride` apart, in each group.
std::vector<std::vector<std::uint32_t>> strided(std::uint32_t world, std::uint32_t stride, std::uint32_t count) {
  std::vector<std::vector<std::uint32_t>> out;
  for (std::uint32_t r = 0; r < world; ++r) {
    if (r / stride % count != 0) continue;
    out.emplace_back();
    for (std::uint32_t i = 0; i < count; ++i) out.back().push_back(r + i * stride);
  }
  return out;
}

// The dimensions, and every group that ranks meet in because of them: those of one rank too, in which Megatron calls collectives.
void state_groups(const Run& run, std::uint32_t instances, Scenario& scenario) {
  using ::gradledger::megatron::ParallelGroups;
  const std::uint32_t tensor = size_of(run, "tp"), context = size_of(run, "cp"), stages = size_of(run, "pp");
  if (run.world % (std::uint64_t{tensor} * context * stages * size_of(run, "ep")) != 0) throw Inexpressible{"dimensions that do not divide the world"};
  scenario.groups["alone"] = strided(run.world, 1, 1);
  scenario.groups["tp"] = strided(run.world, 1, tensor);
  scenario.groups["cp"] = strided(run.world, tensor, context);
  scenario.groups["ep"] = strided(run.world, tensor * context, size_of(run, "ep"));
  scenario.groups["pp"] = strided(run.world, run.world / stages, stages);
  if (const auto problem = ::gradledger::megatron::instances_problem(scenario, instances)) throw Inexpressible{problem->text()};
  const std::pair<const char*, ProcessGroup ParallelGroups::*> met[] = {
      {"dp_cp", &ParallelGroups::data_context},     {"expert_dp", &ParallelGroups::expert_data}, {"mp", &ParallelGroups::model},
      {"expert_mp", &ParallelGroups::expert_model}, {"instance", &ParallelGroups::instance},     {"between", &ParallelGroups::between_instances},
      {"of_instance", &ParallelGroups::of_instance}};
  std::map<std::string, std::set<std::vector<std::uint32_t>>> sets;
  const ::gradledger::megatron::WorldGroups all(scenario);
  for (std::uint32_t r = 0; r < run.world; ++r) {
    const ParallelGroups groups = all.of(instances, r);
    for (const auto& [name, group] : met) sets[name].insert((groups.*group).ranks.listed());
  }
  for (const auto& [name, of_name] : sets) scenario.groups[name] = {of_name.begin(), of_name.end()};
}

// The recorder's defaults: nothing is clipped.
void configure(const Run& run, Expressed& out) {
  const Field given(run.config, "/spec/config");
  json config = run.config;
  config["optimizer_config"] = given.has("optimizer") ? given.at("optimizer").object() : json::object();
  config.erase("optimizer");
  if (!config["optimizer_config"].contains("clip_grad")) config["optimizer_config"]["clip_grad"] = 0.0;
  config["ddp"] = given.has("ddp") ? given.at("ddp").object() : json::object();
  // A release was not given the options that it does not have.
  const auto behaviour = ::gradledger::megatron::behaviour_of(out.scenario.engine.as_of);
  if (!behaviour) throw Inexpressible{"the release: " + behaviour.error().text()};
  for (const auto& [known, option] : {std::pair{behaviour->gathers_all, "overlap_param_gather"}, std::pair{behaviour->instances, "num_distributed_optimizer_instances"},
                                      std::pair{behaviour->pads_for_bandwidth, "pad_buckets_for_high_nccl_busbw"}})
    if (!known) config["ddp"].erase(option);
  auto read = ::gradledger::megatron::megatron_config_from_json(config, "/spec/config");
  if (!read) throw Inexpressible{"configuration: " + read.error().text()};
  out.config = std::move(read).value();
}

// "core_v0.16.1"; what is no tag is the head of its day.
std::string release_of(const std::string& version) { return version.starts_with("core_v") ? version.substr(6) : "head"; }

}  // namespace

Result<Expressed> express(const Run& run) {
  try {
    Expressed out;
    out.scenario.name = run.name;
    out.scenario.world_size = run.world;
    out.scenario.model_dtype = dtype_of(run.dtype);
    out.scenario.after_error = AfterError::go_on;
    out.scenario.engine.framework = "megatron";
    out.scenario.engine.as_of.base = release_of(run.version);
    configure(run, out);
    Model(run, out).build();
    state_groups(run, out.config.ddp.num_distributed_optimizer_instances, out.scenario);
    Builder(run, out).build();
    return out;
  } catch (const Unreadable& unreadable) {
    return unreadable.error;
  } catch (const Inexpressible& reason) {
    return InputError{inexpressible, reason.why};
  }
}

}  // namespace gradledger::conform::megatron
