#include "conformance/megatron/run.h"

#include <algorithm>
#include <limits>

#include "sim/base/limits.h"
#include "conformance/run.h"

namespace gradledger::conform::megatron {
namespace {

using nlohmann::json;

constexpr std::uint32_t any_count = std::numeric_limits<std::uint32_t>::max();

std::string text_of(const Field& field) { return field.text(limits::file_bytes_max); }

// "torch.bfloat16", as the framework prints it.
std::string dtype_text(const Field& field) {
  const std::string text = text_of(field);
  return text.starts_with("torch.") ? text.substr(6) : text;
}

// A list of names, each counted once, or a count for each name.
std::map<std::string, std::uint32_t> counts_of(const Field& field) {
  std::map<std::string, std::uint32_t> out;
  if (field.json().is_array())
    for (const Field& name : field.entries(limits::parameters_max)) out[text_of(name)] = 1;
  else
    for (const auto& [name, count] : field.members()) out[name] = count.count(0, any_count);
  return out;
}

GroupState read_group(const Field& value) {
  GroupState out;
  const std::pair<const char*, std::optional<bool> GroupState::*> flags[] = {
      {"is_last_microbatch", &GroupState::is_last_microbatch},           {"is_first_batch", &GroupState::is_first_batch},
      {"param_gather_dispatched", &GroupState::param_gather_dispatched}, {"grad_reduce_finished", &GroupState::grad_reduce_finished},
      {"grad_reduce_handle", &GroupState::grad_reduce_handle},           {"communication_handle", &GroupState::grad_reduce_handle},
      {"param_gather_handle", &GroupState::param_gather_handle}};
  for (const auto& [key, member] : flags)
    if (value.has(key)) out.*member = value.at(key).flag();
  out.ready = counts_of(value.at("ready"));
  if (value.has("golden")) out.golden = counts_of(value.at("golden"));
  return out;
}

Moment read_moment(const Field& entry, const Run& run) {
  Moment out;
  if (entry.has("error")) out.error = text_of(entry.at("error"));
  for (const auto& [name, value] : entry.at("snap").members()) {
    if (name.starts_with("group")) out.groups[name] = read_group(value);
    else if (name.ends_with(".padding_nonzero")) out.padding_nonzero[name] = value.count(0, any_count);
    else out.buffers[name] = {dtype_text(value.at("dtype")), value.at("raw").numbers(numbers_max)};
  }
  out.collectives = read_calls(entry.at("calls"), run.world);
  if (entry.has("params"))
    for (const Field& parameter : entry.at("params").entries(run.parameters.size())) out.weights.push_back(parameter.numbers(numbers_max));
  if (entry.has("update_successful")) out.updated = entry.at("update_successful").flag();
  if (entry.has("global_grad_norm") && !entry.at("global_grad_norm").json().is_null()) out.norm = entry.at("global_grad_norm").number();
  if (entry.has("num_zeros") && !entry.at("num_zeros").json().is_null()) out.zeros = entry.at("num_zeros").number();
  if (entry.has("loss_scale")) out.loss_scale = entry.at("loss_scale").number();
  return out;
}

BufferLayout read_layout(const Field& buffer, std::uint32_t world) {
  BufferLayout out{dtype_text(buffer.at("param_dtype")),
                   dtype_text(buffer.at("grad_dtype")),
                   buffer.at("numel").count(0, any_count),
                   buffer.at("numel_unpadded").count(0, any_count),
                   {},
                   1,
                   {},
                   {}};
  for (const Field& bucket : buffer.at("bucket_indices").entries(limits::parameters_max)) out.buckets.push_back(bucket.exactly(2));
  out.scaling = buffer.at("gradient_scaling_factor").number();
  for (const Field& rank : buffer.at("dp_ranks").entries(world)) out.ranks.push_back(rank.count(0, world - 1));
  for (const auto& [name, place] : buffer.at("param_index_map").members()) out.places[name] = place.exactly(3);
  return out;
}

void read_parameters(const Field& spec, Run& run) {
  for (const Field& given : spec.at("params").entries(limits::parameters_max)) {
    Parameter p{text_of(given.at("name")), given.at("numel").count(1, limits::recorded_numel_max), 1, {}, false, false, {}};
    if (given.has("uses")) p.uses = given.at("uses").count(1, 64);
    if (given.has("expert")) p.expert = given.at("expert").flag();
    if (given.has("frozen")) p.frozen = given.at("frozen").flag();
    if (given.has("stage") && given.at("stage").json().is_number()) p.stages.push_back(given.at("stage").count(0, run.world - 1));
    else if (given.has("stage"))
      for (const Field& stage : given.at("stage").entries(run.world)) p.stages.push_back(stage.count(0, run.world - 1));
    for (const auto& [key, name] : {std::pair{"sequence_parallel", "sequence_parallel"}, std::pair{"tensor_model_parallel", "tensor_model_parallel"},
                                    std::pair{"tp_avg", "average_gradients_across_tp_domain"}, std::pair{"shared_embedding", "shared_embedding"}})
      if (given.has(key) && given.at(key).flag()) p.attributes.emplace_back(name);
    run.parameters.push_back(std::move(p));
  }
  if (run.parameters.empty()) spec.at("params").fail("is empty; expected at least one parameter");
}

void read_gradients(const Field& line, Run& run) {
  const std::uint32_t micro_batches = line.at("spec").at("n_mb").count(1, limits::micro_batches_max);
  for (std::uint32_t m = 0; m < micro_batches; ++m)
    for (std::uint32_t r = 0; r < run.world; ++r) {
      if (r == 0) run.gradients.emplace_back();
      std::vector<double>& flat = run.gradients.back().emplace_back();
      const Field given = line.at("grads").at("rank" + std::to_string(r)).at("mb" + std::to_string(m));
      for (std::size_t p = 0; p < run.parameters.size(); ++p)
        for (const double x : given.at(p).exactly(run.parameters[p].numel)) flat.push_back(x);
    }
}

// Rank -1 stands for all.
Plant read_plant(const Field& plant, const Run& run, std::uint32_t micro_batches) {
  Plant out;
  out.rank = plant.at("rank").json() == -1 ? -1 : static_cast<std::int32_t>(plant.at("rank").count(0, run.world - 1));
  out.micro_batch = plant.at("mb").count(0, micro_batches - 1);
  out.parameter = text_of(plant.at("param"));
  if (std::none_of(run.parameters.begin(), run.parameters.end(), [&](const Parameter& p) { return p.name == out.parameter; }))
    plant.at("param").fail("names no parameter; expected one of /spec/params");
  out.value = plant.at("value").number();
  return out;
}

// What is not shown cannot agree: a trace ends where it raised, or with the last operation.
void read_trace(const Field& trace, const Run& run, RankRun& out) {
  for (const Field& entry : trace.entries(run.operations.size())) {
    if (entry.at("op").json() != run.operations[out.moments.size()]) entry.at("op").fail("is not the operation at this place of /spec/ops");
    out.moments.push_back(read_moment(entry, run));
  }
  const bool raised = !out.moments.empty() && !out.moments.back().error.empty();
  if (out.refusal.empty() && !raised && out.moments.size() < run.operations.size())
    trace.fail("ends behind " + std::to_string(out.moments.size()) + " of " + std::to_string(run.operations.size()) + " operations; expected all of them, or an error in the last");
}

Run read(const Field& line) {
  Run run;
  const Field spec = line.at("spec");
  run.name = text_of(line.at("name"));
  run.version = text_of(line.at("version"));
  run.world = spec.at("world").count(1, limits::real_ranks_max);
  run.dtype = text_of(spec.at("dtype"));
  read_parameters(spec, run);
  run.config = spec.at("config").object();
  run.operations = spec.at("ops").json();
  spec.at("ops").entries(limits::events_max);
  if (spec.has("parallel"))
    for (const auto& [name, size] : spec.at("parallel").members()) run.parallel[name] = size.count(1, run.world);
  if (spec.has("plant")) {
    run.plant = read_plant(spec.at("plant"), run, spec.at("n_mb").count(1, limits::micro_batches_max));
  }
  if (spec.has("grad_scale")) run.grad_scale = spec.at("grad_scale").number();
  read_gradients(line, run);
  const std::vector<Field> ranks = line.at("ranks").entries(run.world);
  if (ranks.size() != run.world) line.at("ranks").fail("has not one entry for each rank");
  for (const Field& rank : ranks) {
    RankRun& out = run.ranks.emplace_back();
    if (rank.has("error")) out.refusal = text_of(rank.at("error"));
    if (rank.has("buffers"))
      for (const Field& buffer : rank.at("buffers").entries(limits::parameters_max)) out.layout.push_back(read_layout(buffer, run.world));
    read_trace(rank.at("trace"), run, out);
  }
  return run;
}

}  // namespace

bool is_megatron_run(const json& line) { return line.is_object() && line.contains("framework") && line["framework"] == "megatron-core"; }

Result<Run> read_megatron_run(const json& line) {
  try {
    return read(Field(line));
  } catch (const Unreadable& unreadable) {
    return unreadable.error;
  }
}

}  // namespace gradledger::conform::megatron
