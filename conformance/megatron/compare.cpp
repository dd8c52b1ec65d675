#include "conformance/megatron/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <regex>

#include <fmt/format.h>

#include "sim/frameworks/megatron/admission.h"
#include "sim/frameworks/megatron/contract.h"
#include "conformance/megatron/replay.h"
#include "conformance/megatron/script.h"
#include "conformance/recording.h"

namespace gradledger::conform::megatron {
namespace {

// Bit for bit, but that every NaN is one, and that a sum may be a zero of either sign.
bool same(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) || (std::isnan(a) && std::isnan(b)) || (a == 0 && b == 0); }

std::string text(const Collective& c) {
  std::string ranks;
  for (const std::uint32_t r : c.group) ranks += (ranks.empty() ? "" : " ") + std::to_string(r);
  return fmt::format("{} {} of {} {} in ({})", c.kind, c.operation, c.numel, c.dtype, ranks);
}

// Without what it says of the machine.
std::string without_machine(const std::string& error) {
  static const std::regex machine(R"(, node [^,]+, device [^,]+, iteration -?\d+| Device: [^,]+, node: .*$)");
  return std::regex_replace(error, machine, "");
}

class Judge {
 public:
  Judge(const Run& run, const Expressed& expressed, const Replay& replay) : run_(run), expressed_(expressed), replay_(replay) {}

  Comparison judge() {
    out_.name = run_.name;
    out_.version = run_.version;
    for (rank_ = 0; rank_ < run_.world && agrees(); ++rank_) {
      layout();
      const RankRun& rank = run_.ranks[rank_];
      for (operation_ = 0; operation_ < rank.moments.size() && agrees(); ++operation_) moment(rank.moments[operation_], replay_.at(rank_, expressed_.events[operation_]));
    }
    if (agrees() && !replay_.stuck().empty()) differ("the replay " + replay_.stuck());
    if (!agrees()) out_.outcome = Outcome::differs;
    return out_;
  }

 private:
  bool agrees() const { return out_.why.empty(); }

  void differ(const std::string& how) {
    if (agrees()) out_.why = fmt::format("rank {}, operation {} {}: {}", rank_, operation_, operation_ < run_.operations.size() ? run_.operations[operation_].dump() : "", how);
  }

  void layout() {
    const auto& recorded = run_.ranks[rank_].layout;
    const auto& replayed = replay_.layout(rank_);
    for (std::size_t b = 0; b < recorded.size(); ++b) out_.elements += 5 + 2 * recorded[b].buckets.size() + 3 * recorded[b].places.size();
    if (recorded.size() != replayed.size()) return differ(fmt::format("has {} buffers, the replay {}", recorded.size(), replayed.size()));
    for (std::size_t b = 0; b < recorded.size(); ++b)
      if (recorded[b] != replayed[b])
        return differ(fmt::format("buffer {} is laid out otherwise: {} elements, {} without padding, scaled by {}, in {} buckets; in the replay {}, {}, {}, {}", b,
                                  recorded[b].numel, recorded[b].numel_unpadded, recorded[b].scaling, recorded[b].buckets.size(), replayed[b].numel, replayed[b].numel_unpadded,
                                  replayed[b].scaling, replayed[b].buckets.size()));
  }

  void moment(const Moment& recorded, const Moment& replayed) {
    ++out_.elements;
    if (without_machine(recorded.error) != without_machine(replayed.error)) return differ(fmt::format("raises \"{}\", the replay \"{}\"", recorded.error, replayed.error));
    collectives(recorded.collectives, replayed.collectives);
    buffers(recorded, replayed);
    padding(recorded, replayed);
    for (const auto& [name, state] : recorded.groups) group(name, state, replayed.groups);
    if (recorded.weights.size() != replayed.weights.size()) differ(fmt::format("shows {} weights, the replay {}", recorded.weights.size(), replayed.weights.size()));
    for (std::size_t p = 0; p < recorded.weights.size() && agrees(); ++p) values(fmt::format("parameter {}", p), recorded.weights[p], replayed.weights[p]);
    number("norm", recorded.norm, replayed.norm);
    if (recorded.zeros) number("num_zeros", recorded.zeros, replay_.zeros(rank_, expressed_.events[operation_].last));
    if (recorded.updated) number("update_successful", *recorded.updated, replayed.updated ? std::optional<double>(*replayed.updated) : std::nullopt);
    if (recorded.loss_scale) number("loss scale", recorded.loss_scale, replayed.loss_scale.value_or(1.0));
  }

  void collectives(const std::vector<Collective>& recorded, const std::vector<Collective>& replayed) {
    for (std::size_t i = 0; i < std::max(recorded.size(), replayed.size()) && agrees(); ++i) {
      if (i >= recorded.size()) return differ("the replay issues " + text(replayed[i]) + " besides");
      if (i >= replayed.size()) return differ("the replay does not issue " + text(recorded[i]));
      if (recorded[i] != replayed[i]) return differ(fmt::format("issues {}, the replay {}", text(recorded[i]), text(replayed[i])));
      ++out_.collectives;
    }
  }

  void buffers(const Moment& recorded, const Moment& replayed) {
    for (const auto& [name, snapshot] : recorded.buffers) {
      const auto other = replayed.buffers.find(name);
      if (other == replayed.buffers.end()) return differ("the replay has no " + name);
      if (snapshot.dtype != other->second.dtype) return differ(fmt::format("{} is {}, in the replay {}", name, snapshot.dtype, other->second.dtype));
      values(name, snapshot.values, other->second.values);
    }
    for (const auto& [name, snapshot] : replayed.buffers)
      if (!recorded.buffers.contains(name)) return differ("the replay has " + name + " besides");
  }

  void padding(const Moment& recorded, const Moment& replayed) {
    for (const auto& [name, nonzero] : recorded.padding_nonzero) {
      const auto other = replayed.padding_nonzero.find(name);
      number(name.c_str(), nonzero, other == replayed.padding_nonzero.end() ? 0 : other->second);
    }
  }

  void group(const std::string& name, const GroupState& recorded, const std::map<std::string, GroupState>& replayed) {
    const auto found = replayed.find(name);
    if (found == replayed.end()) return differ("the replay has no " + name);
    const GroupState& other = found->second;
    const std::pair<const char*, std::optional<bool> GroupState::*> flags[] = {
        {"is_last_microbatch", &GroupState::is_last_microbatch},           {"is_first_batch", &GroupState::is_first_batch},
        {"param_gather_dispatched", &GroupState::param_gather_dispatched}, {"grad_reduce_finished", &GroupState::grad_reduce_finished},
        {"grad_reduce_handle", &GroupState::grad_reduce_handle},           {"param_gather_handle", &GroupState::param_gather_handle}};
    for (const auto& [what, flag] : flags) {
      if (!(recorded.*flag)) continue;
      ++out_.elements;
      if (recorded.*flag != other.*flag) differ(fmt::format("{} has {} {}, in the replay {}", name, what, *(recorded.*flag), *(other.*flag)));
    }
    out_.elements += recorded.ready.size();
    if (recorded.ready != other.ready) differ(name + " counts other parameters as ready than the replay");
    if (!recorded.golden) return;
    out_.elements += recorded.golden->size();
    if (recorded.golden != other.golden) differ(name + " expects other counts of ready parameters than the replay");
  }

  void number(const char* what, std::optional<double> recorded, std::optional<double> replayed) {
    if (!recorded && !replayed) return;
    ++out_.elements;
    if (!recorded || !replayed || !same(*recorded, *replayed))
      differ(fmt::format("{} is {}, in the replay {}", what, recorded.value_or(std::nan("")), replayed.value_or(std::nan(""))));
  }

  void values(const std::string& what, const std::vector<double>& recorded, const std::vector<double>& replayed) {
    if (recorded.size() != replayed.size()) return differ(fmt::format("{} has {} elements, in the replay {}", what, recorded.size(), replayed.size()));
    for (std::size_t i = 0; i < recorded.size() && agrees(); ++i)
      if (!same(recorded[i], replayed[i])) differ(fmt::format("{}[{}] is {}, in the replay {}", what, i, recorded[i], replayed[i]));
    out_.elements += recorded.size();
  }

  const Run& run_;
  const Expressed& expressed_;
  const Replay& replay_;
  Comparison out_;
  std::size_t rank_ = 0;
  std::size_t operation_ = 0;
};

Comparison left_out(const Run& run, std::string why) {
  Comparison out;
  out.name = run.name;
  out.version = run.version;
  out.outcome = Outcome::inexpressible;
  out.why = std::move(why);
  return out;
}

bool is_refused(const Run& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(), [](const RankRun& rank) { return !rank.refusal.empty(); });
}

// Every rank refuses, and so does the model, in the same words.
Comparison refusal(const Run& run, const std::optional<InputError>& refused) {
  Comparison out = left_out(run, "");
  out.outcome = Outcome::agrees;
  out.elements = 1;
  for (std::size_t r = 0; r < run.ranks.size() && out.why.empty(); ++r) {
    const std::string& words = run.ranks[r].refusal;
    if (!words.empty() && refused && refused->message.find(words) != std::string::npos) continue;
    out.outcome = Outcome::differs;
    out.why = fmt::format("rank {}: Megatron-Core {}; here: {}", r, words.empty() ? "refuses nothing" : "refuses: " + words, refused ? refused->text() : "nothing is refused");
  }
  return out;
}

// Precondition: it is not refused.
Contract contract_of(const Expressed& expressed) {
  return ::gradledger::megatron::megatron_contract(expressed.scenario, expressed.config, ::gradledger::megatron::behaviour_of(expressed.scenario.engine.as_of).value());
}

}  // namespace

Result<Comparison> judge(const Run& run) {
  const auto expressed = express(run);
  if (!expressed && expressed.error().where == inexpressible) return left_out(run, expressed.error().message);
  if (!expressed) return expressed.error();
  const auto refused = ::gradledger::megatron::megatron_refusal(expressed->scenario, expressed->config);
  if (is_refused(run)) return refusal(run, refused);
  if (refused) return left_out(run, refused->text());
  const auto timeline = unroll(expressed->scenario, expressed->scenario.script, contract_of(*expressed));
  if (!timeline) return left_out(run, timeline.error().text());
  const Comparison out = Judge(run, *expressed, Replay(*expressed, *timeline)).judge();
  if (out.outcome == Outcome::agrees && out.elements == 0) return InputError{"/ranks", "show nothing that could be compared; expected buffers or operations"};
  return out;
}

}  // namespace gradledger::conform::megatron
