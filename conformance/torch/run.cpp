#include "conformance/torch/run.h"

#include <limits>
#include <set>
#include <string>

#include "sim/base/limits.h"

namespace gradledger::conform::torch {
namespace {

using nlohmann::json;

constexpr std::uint32_t any_count = std::numeric_limits<std::uint32_t>::max();

std::string text_of(const Field& field) { return field.text(limits::file_bytes_max); }

// Vectors that occur often are written once, and named by their number.
class Vectors {
 public:
  explicit Vectors(const Field& line) {
    if (!line.has("vectors")) return;
    for (const Field& vector : line.at("vectors").entries(numbers_max)) all_.push_back(vector.numbers(numbers_max));
  }

  std::vector<double> of(const Field& field) const {
    if (!field.json().is_number()) return field.numbers(numbers_max);
    if (all_.empty()) field.fail("names a vector, but the run has none");
    return all_[field.count(0, static_cast<std::uint32_t>(all_.size() - 1))];
  }

 private:
  std::vector<std::vector<double>> all_;
};

std::vector<Weights> read_weights(const Field& list, bool with_dtype, std::size_t parameters, const Vectors& vectors) {
  std::vector<Weights> out;
  for (const Field& entry : list.entries(parameters)) {
    Weights weights;
    weights.parameter = entry.at(0).count(0, static_cast<std::uint32_t>(parameters - 1));
    weights.offset = entry.at(1).count(0, any_count);
    if (with_dtype) weights.dtype = text_of(entry.at(2));
    weights.values = vectors.of(entry.at(with_dtype ? 3 : 2));
    out.push_back(std::move(weights));
  }
  return out;
}

std::uint32_t place(const std::string& key, const Field& where) {
  if (key.empty() || key.size() > 6 || key.find_first_not_of("0123456789") != std::string::npos) where.fail("stands under a key that is no number of a collective");
  return static_cast<std::uint32_t>(std::stoul(key));
}

// Snapshots that are left out are those of the operation before.
Moment read_moment(const Field& entry, const Run& run, const Vectors& vectors, const std::vector<Moment>& before) {
  Moment out;
  if (!entry.has("snap") && !before.empty()) out.buffers = before.back().buffers;
  if (entry.has("error")) out.error = text_of(entry.at("error"));
  if (entry.has("snap"))
    for (const auto& [name, value] : entry.at("snap").members()) {
      Snapshot& snapshot = out.buffers[name] = {text_of(value.at("dtype")), vectors.of(value.at("raw")), std::nullopt, 0};
      if (value.has("offset")) snapshot.offset = value.at("offset").count(0, any_count);
      if (value.has("bucket_view_offset")) snapshot.bucket_view_offset = value.at("bucket_view_offset").count(0, any_count);
    }
  if (entry.has("calls")) out.collectives = read_calls(entry.at("calls"), run.world);
  if (entry.has("io"))
    for (const auto& [key, value] : entry.at("io").members()) {
      Transfer& transfer = out.transfers[place(key, value)];
      transfer.in = vectors.of(value.at("in"));
      if (!value.at("out").json().is_null()) transfer.out = vectors.of(value.at("out"));  // null: the collective failed
    }
  if (entry.has("weights")) out.weights = read_weights(entry.at("weights"), true, run.sizes.size(), vectors);
  if (entry.has("applied")) out.applied = read_weights(entry.at("applied"), false, run.sizes.size(), vectors);
  if (entry.has("norm")) out.norm = entry.at("norm").number();
  if (entry.has("loss_scale")) out.loss_scale = entry.at("loss_scale").number();
  return out;
}

// A shape is a number of elements, or a list of dimensions.
void read_rows(const Field& shapes, Run& run) {
  for (const Field& shape : shapes.entries(run.sizes.size())) run.rows.push_back((shape.json().is_array() ? shape.at(0) : shape).count(1, any_count));
}

void read_model(const Field& spec, Run& run) {
  for (const Field& size : spec.at("sizes").entries(limits::parameters_max)) run.sizes.push_back(size.count(1, limits::recorded_numel_max));
  if (run.sizes.empty()) spec.at("sizes").fail("is empty; expected the size of at least one parameter");
  run.in_root = static_cast<std::uint32_t>(spec.at("root").entries(run.sizes.size()).size());
  std::size_t all = run.in_root;
  for (const Field& unit : spec.at("units").entries(run.sizes.size())) {
    run.in_units.push_back(static_cast<std::uint32_t>(unit.entries(run.sizes.size()).size()));
    all += run.in_units.back();
  }
  if (all != run.sizes.size()) spec.at("units").fail("do not make up the parameters together with root");
  read_rows(spec.at("root"), run);
  for (const Field& unit : spec.at("units").entries(run.sizes.size())) read_rows(unit, run);
  run.root_at_end = spec.has("root_at") && text_of(spec.at("root_at")) == "end";
  run.input_requires_grad = spec.has("input_grad") && spec.at("input_grad").flag();
  run.dtype = text_of(spec.at("dtype"));
  if (spec.has("dtypes"))
    for (const Field& dtype : spec.at("dtypes").entries(run.sizes.size())) run.dtypes.push_back(text_of(dtype));
  if (!run.dtypes.empty() && run.dtypes.size() != run.sizes.size()) spec.at("dtypes").fail("has not one entry for each parameter");
}

void read_gradients(const Field& line, Run& run, const Vectors& vectors) {
  const std::uint32_t micro_batches = line.at("spec").at("n_mb").count(1, limits::micro_batches_max);
  for (std::uint32_t m = 0; m < micro_batches; ++m)
    for (std::uint32_t r = 0; r < run.world; ++r) {
      if (r == 0) run.gradients.emplace_back();
      std::vector<double>& flat = run.gradients.back().emplace_back();
      const Field given = line.at("grads").at("rank" + std::to_string(r)).at("mb" + std::to_string(m));
      for (std::size_t p = 0; p < run.sizes.size(); ++p) {
        const std::vector<double> values = vectors.of(given.at(p));
        if (values.size() != run.sizes[p]) given.at(p).fail("has another size than its parameter");
        flat.insert(flat.end(), values.begin(), values.end());
      }
    }
}

Run read(const Field& line) {
  Run run;
  const Field spec = line.at("spec");
  const Vectors vectors(line);
  run.name = text_of(line.at("name"));
  run.framework = text_of(line.at("framework"));
  run.version = text_of(line.at("version"));
  run.world = spec.at("world").count(1, limits::real_ranks_max);
  read_model(spec, run);
  run.config = spec.at("config").object();
  run.operations = spec.at("ops").json();
  spec.at("ops").entries(limits::events_max);
  if (!line.at("grads").json().is_null()) read_gradients(line, run, vectors);  // null: the wrapper refused
  const std::vector<Field> ranks = line.at("ranks").entries(run.world);
  if (ranks.size() != run.world) line.at("ranks").fail("has not one entry for each rank");
  for (const Field& rank : ranks) {
    std::vector<Moment>& moments = run.ranks.emplace_back();
    if (rank.has("init_error")) run.refusal = text_of(rank.at("init_error"));
    if (rank.has("ended_by")) run.ended_by = text_of(rank.at("ended_by"));
    if (!rank.has("trace")) continue;
    for (const Field& entry : rank.at("trace").entries(run.operations.size())) {
      if (entry.at("op").json() != run.operations[moments.size()]) entry.at("op").fail("is not the operation at this place of /spec/ops");
      moments.push_back(read_moment(entry, run, vectors, moments));
    }
  }
  return run;
}

}  // namespace

bool is_torch_run(const json& line) {
  static const std::set<std::string> known{"ddp", "fsdp1", "fsdp2", "megatron-fsdp", "megatron-fsdp-v2"};
  return line.is_object() && line.contains("framework") && line["framework"].is_string() && known.contains(line["framework"].get<std::string>());
}

Result<Run> read_torch_run(const json& line) {
  try {
    return read(Field(line));
  } catch (const Unreadable& unreadable) {
    return unreadable.error;
  }
}

}  // namespace gradledger::conform::torch
