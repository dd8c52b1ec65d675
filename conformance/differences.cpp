#include "conformance/differences.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "sim/base/limits.h"

namespace gradledger::conform {
namespace {

std::string text_of_call(const Collective& c) {
  std::string ranks;
  for (const std::uint32_t r : c.group) ranks += (ranks.empty() ? "" : " ") + std::to_string(r);
  return fmt::format("{} {} of {} {} in ({})", c.kind, c.operation, c.numel, c.dtype, ranks);
}

// Bit for bit, but that every NaN is one.
bool same_number(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) || (std::isnan(a) && std::isnan(b)); }

}  // namespace

std::vector<Collective> read_calls(const Field& list, std::uint32_t world) {
  const auto word = [](const Field& field) { return field.text(limits::file_bytes_max); };
  std::vector<Collective> out;
  for (const Field& call : list.entries(limits::collectives_max)) {
    Collective one{word(call.at(0)), call.at(1).count(0, std::numeric_limits<std::uint32_t>::max()), word(call.at(2)), "", {}};
    if (!call.at(3).json().is_null()) one.operation = word(call.at(3));
    for (const Field& rank : call.at(4).entries(world)) one.group.push_back(rank.count(0, world - 1));
    out.push_back(std::move(one));
  }
  return out;
}

Comparison left_out(const std::string& name, const std::string& version, std::string why) {
  Comparison out;
  out.name = name;
  out.version = version;
  out.outcome = Outcome::inexpressible;
  out.why = std::move(why);
  return out;
}

bool refuses_as(const std::optional<InputError>& refused, const std::string& words) {
  return refused && !words.empty() && refused->message.ends_with(" at initialisation: " + words);
}

void Differences::differ(const std::string& how) {
  if (none()) out_.why = fmt::format("rank {}, operation {} {}: {}", rank_, operation_, operation_ < operations_.size() ? operations_[operation_].dump() : "", how);
}

void Differences::number(const char* what, std::optional<double> recorded, std::optional<double> replayed) {
  if (!recorded && !replayed) return;
  ++out_.elements;
  if (!recorded || !replayed || !same_number(*recorded, *replayed))
    differ(fmt::format("{} is {}, in the replay {}", what, recorded.value_or(std::nan("")), replayed.value_or(std::nan(""))));
}

void Differences::values(const std::string& what, const std::vector<double>& recorded, const std::vector<double>& replayed) {
  if (recorded.size() != replayed.size()) return differ(fmt::format("{} has {} elements, in the replay {}", what, recorded.size(), replayed.size()));
  for (std::size_t i = 0; i < recorded.size() && none(); ++i)
    if (!same_number(recorded[i], replayed[i])) differ(fmt::format("{}[{}] is {}, in the replay {}", what, i, recorded[i], replayed[i]));
  out_.elements += recorded.size();
}

void Differences::calls(const std::vector<Collective>& recorded, const std::vector<Collective>& replayed) {
  for (std::size_t i = 0; i < std::max(recorded.size(), replayed.size()) && none(); ++i) {
    if (i >= recorded.size()) return differ("the replay issues " + text_of_call(replayed[i]) + " besides");
    if (i >= replayed.size()) return differ("the replay does not issue " + text_of_call(recorded[i]));
    if (recorded[i] != replayed[i]) return differ(fmt::format("issues {}, the replay {}", text_of_call(recorded[i]), text_of_call(replayed[i])));
    ++out_.collectives;
  }
}

Comparison Differences::finish(const std::string& in_part) {
  if (!none()) out_.outcome = Outcome::differs;
  else out_.why = in_part;
  return out_;
}

}  // namespace gradledger::conform
