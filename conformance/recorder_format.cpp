// The recorder's own lines: {"name", "version", "spec": {"world", "sizes", "n_mb", "config", "ops"}, "grads": {"rank0": {"mb0": [[...]]}},
// "ranks": [{"trace": [{"op", "calls", "snap": {buffer: {"dtype", "raw"}}, "params", "global_grad_norm", "loss_scale", "overflow", "error"}]}]}. What
// they say besides is not needed.
#include "conformance/run_parts.h"

namespace gradledger::conform {
namespace {

// "torch.bfloat16", as the framework prints it.
std::string dtype_name(const Field& dtype) {
  const std::string& text = dtype.text(limits::name_length_max);
  return text.starts_with("torch.") ? text.substr(6) : text;
}

std::vector<double> flat_gradient(const Field& parameters, const RecordedRun& run) {
  std::vector<double> flat;
  const std::vector<Field> given = parameters.entries(run.sizes.size());
  if (given.size() != run.sizes.size()) parameters.fail("has " + std::to_string(given.size()) + " parameters; expected " + std::to_string(run.sizes.size()));
  for (std::size_t p = 0; p < given.size(); ++p) {
    const std::vector<double> elements = given[p].exactly(run.sizes[p]);
    flat.insert(flat.end(), elements.begin(), elements.end());
  }
  return flat;
}

RecordedMoment read_moment(const Field& entry, const nlohmann::json& operation, const RecordedRun& run, NumberBudget& budget) {
  RecordedMoment out;
  if (entry.at("op").json() != operation) entry.at("op").fail("is not the operation at this place of /spec/ops");
  out.operation = operation_text(operation);
  if (entry.has("error")) out.error = entry.at("error").text(limits::file_bytes_max);
  if (entry.has("snap"))
    for (const auto& [name, value] : entry.at("snap").members()) {
      if (!value.has("raw")) continue;  // counters, and values that are derived from buffers
      std::vector<double> values = value.at("raw").numbers(numbers_max);
      budget.take(values.size(), value);
      out.buffers[name] = {dtype_name(value.at("dtype")), std::move(values)};
    }
  for (std::size_t p = 0; entry.has("params") && p < run.sizes.size(); ++p) {
    out.parameters.push_back(entry.at("params").at(p).exactly(run.sizes[p]));
    budget.take(run.sizes[p], entry);
  }
  out.collectives = read_collectives(entry, "calls", budget);
  read_step(entry, out);
  if (entry.has("global_grad_norm") && !entry.at("global_grad_norm").json().is_null()) out.norm = entry.at("global_grad_norm").number();
  return out;
}

}  // namespace

RecordedRun read_recorder_format(const Field& line) {
  RecordedRun run;
  const Field spec = line.at("spec");
  run.name = line.at("name").text(limits::name_length_max);
  run.version = line.at("version").text(limits::name_length_max);
  const std::uint32_t micro_batches = read_outline({spec.at("world"), spec.at("sizes"), spec.at("ops"), spec.at("n_mb")}, run);
  run.config = spec.at("config").object();
  read_additions(spec, line, run);
  run.goes_on_after_errors = spec.has("continue_on_error") && spec.at("continue_on_error").flag();
  for (std::uint32_t m = 0; m < micro_batches; ++m) {
    run.gradients.emplace_back();
    for (std::uint32_t r = 0; r < run.world; ++r) run.gradients.back().push_back(flat_gradient(line.at("grads").at("rank" + std::to_string(r)).at("mb" + std::to_string(m)), run));
  }
  if (!run.unfinished.empty()) return run;
  const Field ranks = line.at("ranks");
  for (const Field& rank : ranks.entries(run.world))
    if (rank.has("init_error")) {
      run.refusal = rank.at("init_error").text(limits::file_bytes_max);
      return run;
    }
  NumberBudget budget;
  for (const Field& rank : ranks.entries(run.world)) {
    run.ranks.emplace_back();
    for (const Field& entry : rank.at("trace").entries(run.operations.size())) run.ranks.back().push_back(read_moment(entry, run.operations[run.ranks.back().size()], run, budget));
  }
  check_lengths(run, ranks);
  return run;
}

}  // namespace gradledger::conform
