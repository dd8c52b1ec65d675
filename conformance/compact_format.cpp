#include "conformance/compact_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "conformance/run_parts.h"

namespace gradledger::conform {
namespace {

using nlohmann::ordered_json;

constexpr const char* one_hot = "one-hot codes";

// Rank r's micro-batch m has code c = r x micro-batches + m. Elements come in blocks of one more than there are codes: in block b of each
// parameter the element at c is 1, 2 or 4 (b mod 3), the last is c + 1 for every code, the others are 0.
std::vector<double> one_hot_gradient(std::uint32_t code, std::uint32_t codes, const std::vector<std::uint32_t>& sizes) {
  constexpr std::array<double, 3> weights{1, 2, 4};
  std::vector<double> flat;
  for (std::uint32_t size : sizes)
    for (std::uint32_t e = 0; e < size; ++e) {
      const std::uint32_t block = e / (codes + 1), place = e % (codes + 1);
      flat.push_back(place == codes ? code + 1.0 : place == code ? weights[block % weights.size()] : 0.0);
    }
  return flat;
}

GivenValues one_hot_gradients(std::uint32_t micro_batches, const RecordedRun& run) {
  GivenValues out(micro_batches);
  for (std::uint32_t m = 0; m < micro_batches; ++m)
    for (std::uint32_t r = 0; r < run.world; ++r) out[m].push_back(one_hot_gradient(r * micro_batches + m, run.world * micro_batches, run.sizes));
  return out;
}

// ---- writing ----------------------------------------------------------------------------------------------------------------------------

constexpr double whole_max = 9007199254740992.0;  // 2^53: every whole number up to here is itself in 64-bit integers and in doubles

ordered_json number_json(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  const bool whole = std::abs(x) <= whole_max && std::nearbyint(x) == x && !(x == 0 && std::signbit(x));
  return whole ? ordered_json(static_cast<std::int64_t>(x)) : ordered_json(x);
}

class VectorTable {
 public:
  // The vector's number, the same for equal bits.
  std::size_t number(const std::vector<double>& values) {
    std::vector<std::uint64_t> bits;
    for (double x : values) bits.push_back(std::bit_cast<std::uint64_t>(std::isnan(x) ? std::nan("") : x));
    const auto [it, is_new] = numbers_.emplace(std::move(bits), table_.size());
    if (is_new) {
      ordered_json entry = ordered_json::array();
      for (double x : values) entry.push_back(number_json(x));
      table_.push_back(std::move(entry));
    }
    return it->second;
  }

  ordered_json take() { return std::move(table_); }

 private:
  std::map<std::vector<std::uint64_t>, std::size_t> numbers_;
  ordered_json table_ = ordered_json::array();
};

ordered_json call_json(const RecordedCollective& call) {
  ordered_json out{call.kind, call.numel, call.dtype};
  ordered_json details = ordered_json::object();
  if (!call.operation.empty()) details["operator"] = call.operation;
  if (call.group) details["group"] = *call.group;
  if (call.root) details["root"] = *call.root;
  if (!details.empty()) out.push_back(std::move(details));
  return out;
}

using WrittenBuffers = std::map<std::string, std::pair<std::string, std::size_t>>;  // dtype, and the vector's number

ordered_json moment_json(const RecordedMoment& moment, WrittenBuffers& held, VectorTable& vectors) {
  ordered_json out = ordered_json::object();
  WrittenBuffers now;
  for (const auto& [name, buffer] : moment.buffers) now[name] = {buffer.dtype, vectors.number(buffer.values)};
  for (const auto& [name, buffer] : now)
    if (const auto before = held.find(name); before == held.end() || before->second != buffer) out["changed"][name] = {buffer.first, buffer.second};
  for (const auto& [name, vector] : held)
    if (!now.contains(name)) out["gone"].push_back(name);
  held = std::move(now);
  for (const std::vector<double>& parameter : moment.parameters) out["weights"].push_back(vectors.number(parameter));
  if (moment.norm) out["norm"] = number_json(*moment.norm);
  if (moment.loss_scale) out["loss_scale"] = number_json(*moment.loss_scale);
  if (moment.overflow) out["overflow"] = *moment.overflow;
  if (moment.collectives) {
    ordered_json& calls = out["collectives"] = ordered_json::array();
    for (const RecordedCollective& call : *moment.collectives) calls.push_back(call_json(call));
  }
  if (!moment.error.empty()) out["error"] = moment.error;
  return out;
}

ordered_json gradients_json(const RecordedRun& run, VectorTable& vectors) {
  if (same_gradients(run.gradients, one_hot_gradients(static_cast<std::uint32_t>(run.gradients.size()), run))) return one_hot;
  ordered_json out = ordered_json::array();
  for (const auto& micro_batch : run.gradients) {
    ordered_json ranks = ordered_json::array();
    for (const std::vector<double>& flat : micro_batch) ranks.push_back(vectors.number(flat));
    out.push_back(std::move(ranks));
  }
  return out;
}

// ---- reading ----------------------------------------------------------------------------------------------------------------------------

using Vectors = std::vector<std::vector<double>>;

Vectors read_vectors(const Field& table) {
  Vectors out;
  for (const Field& entry : table.entries(numbers_max)) out.push_back(entry.numbers(numbers_max));
  return out;
}

const std::vector<double>& vector_named(const Field& number, const Vectors& vectors) {
  if (vectors.empty()) number.fail("names a vector, but /vectors is empty");
  return vectors[number.count(0, static_cast<std::uint32_t>(vectors.size() - 1))];
}

const std::vector<double>& vector_of(std::size_t size, const Field& number, const Vectors& vectors) {
  const std::vector<double>& out = vector_named(number, vectors);
  if (out.size() != size) number.fail("names a vector of " + std::to_string(out.size()) + " elements; expected one of " + std::to_string(size));
  return out;
}

GivenValues read_gradients(const Field& gradients, std::uint32_t micro_batches, const RecordedRun& run, const Vectors& vectors) {
  if (gradients.json() == one_hot) return one_hot_gradients(micro_batches, run);
  std::size_t elements = 0;
  for (std::uint32_t size : run.sizes) elements += size;
  GivenValues out(micro_batches);
  for (std::uint32_t m = 0; m < micro_batches; ++m)
    for (std::uint32_t r = 0; r < run.world; ++r) out[m].push_back(vector_of(elements, gradients.at(m).at(r), vectors));
  return out;
}

using HeldBuffers = std::map<std::string, std::pair<std::string, const std::vector<double>*>>;

RecordedMoment read_moment(const Field& entry, const RecordedRun& run, const Vectors& vectors, HeldBuffers& held, NumberBudget& budget) {
  RecordedMoment out;
  if (entry.has("changed"))
    for (const auto& [name, buffer] : entry.at("changed").members()) held[name] = {buffer.at(0).text(limits::name_length_max), &vector_named(buffer.at(1), vectors)};
  if (entry.has("gone"))
    for (const Field& name : entry.at("gone").entries(numbers_max))
      if (held.erase(name.text(limits::name_length_max)) == 0) name.fail("names a buffer that was not there");
  // Asked for before it is copied: a short line can name the same long vector often.
  for (const auto& [name, buffer] : held) {
    budget.take(buffer.second->size(), entry);
    out.buffers[name] = {buffer.first, *buffer.second};
  }
  for (std::size_t p = 0; entry.has("weights") && p < run.sizes.size(); ++p) {
    budget.take(run.sizes[p], entry);
    out.parameters.push_back(vector_of(run.sizes[p], entry.at("weights").at(p), vectors));
  }
  out.collectives = read_collectives(entry, "collectives", budget);
  read_step(entry, out);
  if (entry.has("norm")) out.norm = entry.at("norm").number();
  if (entry.has("error")) out.error = entry.at("error").text(limits::file_bytes_max);
  return out;
}

std::vector<RecordedMoment> read_rank(const Field& rank, const RecordedRun& run, const Vectors& vectors, NumberBudget& budget) {
  std::vector<RecordedMoment> out;
  if (rank.json().is_number()) {
    if (run.ranks.empty()) rank.fail("says that the first rank is like an earlier one");
    const std::vector<RecordedMoment>& like = run.ranks[rank.count(0, static_cast<std::uint32_t>(run.ranks.size() - 1))];
    for (const RecordedMoment& moment : like) {
      for (const auto& [name, buffer] : moment.buffers) budget.take(buffer.values.size(), rank);
      for (const std::vector<double>& parameter : moment.parameters) budget.take(parameter.size(), rank);
      if (moment.collectives) budget.take(NumberBudget::per_text * moment.collectives->size(), rank);
    }
    return like;
  }
  HeldBuffers held;
  for (const Field& entry : rank.entries(run.operations.size())) {
    RecordedMoment moment = read_moment(entry, run, vectors, held, budget);
    moment.operation = operation_text(run.operations[out.size()]);
    out.push_back(std::move(moment));
  }
  return out;
}

}  // namespace

ordered_json to_compact(const RecordedRun& run) {
  VectorTable vectors;
  ordered_json out{{"format", compact_format}, {"name", run.name},     {"version", run.version},       {"world", run.world},
                   {"sizes", run.sizes},       {"config", run.config}, {"operations", run.operations}, {"micro_batches", run.gradients.size()}};
  if (!run.optimizer.is_null()) out["optimizer"] = run.optimizer;
  out["gradients"] = gradients_json(run, vectors);
  if (!run.patch.empty()) out["patch"] = run.patch;
  if (run.goes_on_after_errors) out["goes_on_after_errors"] = true;
  if (!run.unfinished.empty()) out["unfinished"] = run.unfinished;
  if (!run.refusal.empty()) out["refusal"] = run.refusal;
  ordered_json ranks = ordered_json::array();
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    const auto same = std::find(run.ranks.begin(), run.ranks.begin() + static_cast<std::ptrdiff_t>(r), run.ranks[r]);
    const auto earlier = static_cast<std::size_t>(same - run.ranks.begin());
    if (earlier < r) {
      ranks.push_back(earlier);
      continue;
    }
    ordered_json moments = ordered_json::array();
    WrittenBuffers held;
    for (const RecordedMoment& moment : run.ranks[r]) moments.push_back(moment_json(moment, held, vectors));
    ranks.push_back(std::move(moments));
  }
  out["vectors"] = vectors.take();
  out["ranks"] = std::move(ranks);
  return out;
}

RecordedRun read_compact_format(const Field& line) {
  RecordedRun run;
  if (line.at("format").json() != compact_format) line.at("format").fail(std::string("is not known; expected \"") + compact_format + "\"");
  run.name = line.at("name").text(limits::name_length_max);
  run.version = line.at("version").text(limits::name_length_max);
  const std::uint32_t micro_batches = read_outline({line.at("world"), line.at("sizes"), line.at("operations"), line.at("micro_batches")}, run);
  run.config = line.at("config").object();
  read_additions(line, line, run);
  run.goes_on_after_errors = line.has("goes_on_after_errors") && line.at("goes_on_after_errors").flag();
  const Vectors vectors = read_vectors(line.at("vectors"));
  run.gradients = read_gradients(line.at("gradients"), micro_batches, run, vectors);
  if (line.has("refusal")) {
    run.refusal = line.at("refusal").text(limits::file_bytes_max);
    return run;
  }
  if (!run.unfinished.empty()) return run;
  NumberBudget budget;
  const Field ranks = line.at("ranks");
  for (const Field& rank : ranks.entries(run.world)) run.ranks.push_back(read_rank(rank, run, vectors, budget));
  check_lengths(run, ranks);
  return run;
}

}  // namespace gradledger::conform
