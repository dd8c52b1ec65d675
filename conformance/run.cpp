#include "conformance/run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "sim/scenario/schema.h"
#include "conformance/compact_format.h"
#include "conformance/run_parts.h"

namespace gradledger::conform {
namespace {

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) || (std::isnan(a) && std::isnan(b)); }

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) { return same_bits(x, y); });
}

bool same_bits(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return same_bits(x, y); });
}

}  // namespace

bool RecordedBuffer::operator==(const RecordedBuffer& other) const { return dtype == other.dtype && same_bits(values, other.values); }

bool RecordedMoment::operator==(const RecordedMoment& other) const {
  return operation == other.operation && error == other.error && same_bits(parameters, other.parameters) && norm.has_value() == other.norm.has_value() &&
         (!norm || same_bits(*norm, *other.norm)) && loss_scale == other.loss_scale && overflow == other.overflow && collectives == other.collectives && buffers == other.buffers;
}

bool RecordedRun::operator==(const RecordedRun& other) const {
  return name == other.name && version == other.version && world == other.world && sizes == other.sizes && config == other.config && optimizer == other.optimizer &&
         operations == other.operations && patch == other.patch && unfinished == other.unfinished && goes_on_after_errors == other.goes_on_after_errors &&
         refusal == other.refusal && ranks == other.ranks && same_gradients(gradients, other.gradients);
}

bool same_gradients(const GivenValues& a, const GivenValues& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return same_bits(x, y); });
}

Result<RecordedRun> read_run(const nlohmann::json& line) {
  try {
    const Field field(line);
    return field.has("format") ? read_compact_format(field) : read_recorder_format(field);
  } catch (const Unreadable& unreadable) {
    return unreadable.error;
  }
}

std::uint32_t read_outline(const OutlineFields& fields, RecordedRun& run) {
  run.world = fields.world.count(1, limits::real_ranks_max);
  std::uint64_t elements = 0;
  for (const Field& size : fields.sizes.entries(limits::parameters_max)) {
    run.sizes.push_back(size.count(0, limits::recorded_numel_max));
    elements += std::max<std::uint64_t>(run.sizes.back(), 1);  // an empty one takes part in everything
  }
  if (run.sizes.empty()) fields.sizes.fail("is empty; expected the size of at least one parameter");
  run.operations = fields.operations.json();
  const std::uint64_t operations = fields.operations.entries(limits::events_max).size();
  const std::uint32_t micro_batches = fields.micro_batches.count(1, limits::micro_batches_max);
  // Flat buffers are padded by less than two elements a rank. This stays below 2^51: no limit above lets it overflow.
  const std::uint64_t on_ranks = run.world * (elements + 2 * run.world);
  const std::uint64_t repeats = std::max<std::uint64_t>(operations, micro_batches);
  if (on_ranks > numbers_max / std::max<std::uint64_t>(repeats, 1))
    fields.sizes.fail(std::to_string(elements) + " elements on " + std::to_string(run.world) + " ranks over " + std::to_string(repeats) +
                      " operations or micro-batches would need too much memory; expected a product of at most " + std::to_string(numbers_max));
  return micro_batches;
}

std::string operation_text(const nlohmann::json& operation) {
  std::string out;
  for (const nlohmann::json& word : operation) out += (out.empty() ? "" : " ") + (word.is_string() ? word.get<std::string>() : word.dump());
  return out;
}

static void read_details(const Field& details, RecordedCollective& call, NumberBudget& budget) {
  if (details.has("operator")) call.operation = details.at("operator").text(limits::name_length_max);
  if (details.has("root")) call.root = details.at("root").count(0, limits::real_ranks_max - 1);
  if (!details.has("group")) return;
  call.group.emplace();
  for (const Field& rank : details.at("group").entries(limits::real_ranks_max)) call.group->push_back(rank.count(0, limits::real_ranks_max - 1));
  budget.take(call.group->size(), details);
}

std::optional<std::vector<RecordedCollective>> read_collectives(const Field& moment, const std::string& key, NumberBudget& budget) {
  if (!moment.has(key)) return std::nullopt;
  std::vector<RecordedCollective> out;
  const std::vector<Field> calls = moment.at(key).entries(limits::collectives_max);
  budget.take(NumberBudget::per_text * calls.size(), moment.at(key));
  for (const Field& call : calls) {
    out.push_back({call.at(0).text(limits::name_length_max), call.at(1).count(0, std::numeric_limits<std::uint32_t>::max()), call.at(2).text(limits::name_length_max)});
    if (call.json().size() > 3) read_details(call.at(3), out.back(), budget);
  }
  return out;
}

void read_step(const Field& moment, RecordedMoment& out) {
  if (moment.has("loss_scale") && !moment.at("loss_scale").json().is_null()) out.loss_scale = moment.at("loss_scale").number();
  if (moment.has("overflow") && !moment.at("overflow").json().is_null()) out.overflow = moment.at("overflow").flag();
}

// A text, or a list of them.
static std::string read_patch(const Field& patch) {
  if (!patch.json().is_array()) return patch.text(limits::file_bytes_max);
  std::string out;
  for (const Field& part : patch.entries(limits::collectives_max)) out += (out.empty() ? "" : ". ") + part.text(limits::file_bytes_max);
  return out;
}

void read_additions(const Field& spec, const Field& line, RecordedRun& run) {
  if (spec.has("optimizer")) {
    run.optimizer = spec.at("optimizer").object();
    if (auto problem = check_against_part("/properties/engine/properties/optimizer", run.optimizer, "")) spec.at("optimizer").fail(problem->text());
  }
  if (spec.has("patch")) run.patch = read_patch(spec.at("patch"));
  if (line.has("unfinished")) run.unfinished = line.at("unfinished").text(limits::file_bytes_max);
}

void check_lengths(const RecordedRun& run, const Field& ranks) {
  if (run.ranks.size() != run.world) ranks.fail("has entries for " + std::to_string(run.ranks.size()) + " ranks; expected one for each of " + std::to_string(run.world));
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    const std::vector<RecordedMoment>& moments = run.ranks[r];
    const bool ended = !moments.empty() && !moments.back().error.empty();
    if (moments.size() == run.operations.size() || (ended && moments.size() < run.operations.size())) continue;
    ranks.at(r).fail("has " + std::to_string(moments.size()) + " entries for " + std::to_string(run.operations.size()) + " operations; expected one for each, up to an error");
  }
}

}  // namespace gradledger::conform
