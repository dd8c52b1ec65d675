#include "conformance/megatron/compare.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "sim/frameworks/megatron/admission.h"
#include "sim/frameworks/megatron/contract.h"
#include "conformance/differences.h"
#include "conformance/megatron/replay.h"
#include "conformance/megatron/script.h"
#include "conformance/recording.h"

namespace gradledger::conform::megatron {
namespace {

// Without what it says of the machine.
std::string without_machine(std::string error) {
  const auto cut = [&](std::string_view from, std::string_view past, std::string_view last) {
    const std::size_t begin = error.find(from);
    const std::size_t middle = begin == std::string::npos ? begin : error.find(past, begin);
    if (middle == std::string::npos) return;
    const std::size_t end = last.empty() ? error.size() : error.find_first_not_of(last, middle + past.size());
    error.erase(begin, end == std::string::npos ? end : end - begin);
  };
  cut(", node ", ", iteration ", "-0123456789");
  cut(" Device: ", ", node: ", "");
  return error;
}

class Judge {
 public:
  Judge(const Run& run, const Expressed& expressed, const Replay& replay) : run_(run), expressed_(expressed), replay_(replay), out_(run.name, run.version, run.operations) {}

  Comparison judge() {
    for (rank_ = 0; rank_ < run_.world && out_.none(); ++rank_) {
      out_.at(rank_, 0);
      layout();
      const RankRun& rank = run_.ranks[rank_];
      for (std::size_t operation = 0; operation < rank.moments.size() && out_.none(); ++operation) {
        out_.at(rank_, operation);
        moment(rank.moments[operation], expressed_.events[operation]);
      }
    }
    if (!replay_.stuck().empty()) out_.differ("the replay " + replay_.stuck());
    return out_.finish("");
  }

 private:
  void layout() {
    const auto& recorded = run_.ranks[rank_].layout;
    const auto& replayed = replay_.layout(rank_);
    for (std::size_t b = 0; b < recorded.size(); ++b) out_.count(5 + 2 * recorded[b].buckets.size() + 3 * recorded[b].places.size());
    if (recorded.size() != replayed.size()) return out_.differ(fmt::format("has {} buffers, the replay {}", recorded.size(), replayed.size()));
    for (std::size_t b = 0; b < recorded.size(); ++b)
      if (recorded[b] != replayed[b])
        return out_.differ(fmt::format("buffer {} is laid out otherwise: {} elements, {} without padding, scaled by {}, in {} buckets; in the replay {}, {}, {}, {}", b,
                                       recorded[b].numel, recorded[b].numel_unpadded, recorded[b].scaling, recorded[b].buckets.size(), replayed[b].numel,
                                       replayed[b].numel_unpadded, replayed[b].scaling, replayed[b].buckets.size()));
  }

  void moment(const Moment& recorded, const EventRange& events) {
    const Moment& replayed = replay_.at(rank_, events);
    out_.count(1);
    if (without_machine(recorded.error) != without_machine(replayed.error)) return out_.differ(fmt::format("raises \"{}\", the replay \"{}\"", recorded.error, replayed.error));
    out_.calls(recorded.collectives, replayed.collectives);
    buffers(recorded, replayed);
    padding(recorded, replayed);
    for (const auto& [name, state] : recorded.groups) group(name, state, replayed.groups);
    if (recorded.weights.size() != replayed.weights.size()) out_.differ(fmt::format("shows {} weights, the replay {}", recorded.weights.size(), replayed.weights.size()));
    for (std::size_t p = 0; p < recorded.weights.size() && out_.none(); ++p) out_.values(fmt::format("parameter {}", p), recorded.weights[p], replayed.weights[p]);
    out_.number("norm", recorded.norm, replayed.norm);
    if (recorded.zeros) out_.number("num_zeros", recorded.zeros, replay_.zeros(rank_, events.last));
    if (recorded.updated) out_.number("update_successful", *recorded.updated, replayed.updated ? std::optional<double>(*replayed.updated) : std::nullopt);
    if (recorded.loss_scale) out_.number("loss scale", recorded.loss_scale, replayed.loss_scale.value_or(1.0));
  }

  void buffers(const Moment& recorded, const Moment& replayed) {
    for (const auto& [name, snapshot] : recorded.buffers) {
      const auto other = replayed.buffers.find(name);
      if (other == replayed.buffers.end()) return out_.differ("the replay has no " + name);
      if (snapshot.dtype != other->second.dtype) return out_.differ(fmt::format("{} is {}, in the replay {}", name, snapshot.dtype, other->second.dtype));
      out_.values(name, snapshot.values, other->second.values);
    }
    for (const auto& [name, snapshot] : replayed.buffers)
      if (!recorded.buffers.contains(name)) return out_.differ("the replay has " + name + " besides");
  }

  void padding(const Moment& recorded, const Moment& replayed) {
    for (const auto& [name, nonzero] : recorded.padding_nonzero) {
      const auto other = replayed.padding_nonzero.find(name);
      out_.number(name.c_str(), nonzero, other == replayed.padding_nonzero.end() ? 0 : other->second);
    }
  }

  void group(const std::string& name, const GroupState& recorded, const std::map<std::string, GroupState>& replayed) {
    const auto found = replayed.find(name);
    if (found == replayed.end()) return out_.differ("the replay has no " + name);
    const GroupState& other = found->second;
    const std::pair<const char*, std::optional<bool> GroupState::*> flags[] = {
        {"is_last_microbatch", &GroupState::is_last_microbatch},           {"is_first_batch", &GroupState::is_first_batch},
        {"param_gather_dispatched", &GroupState::param_gather_dispatched}, {"grad_reduce_finished", &GroupState::grad_reduce_finished},
        {"grad_reduce_handle", &GroupState::grad_reduce_handle},           {"param_gather_handle", &GroupState::param_gather_handle}};
    for (const auto& [what, flag] : flags) {
      if (!(recorded.*flag)) continue;
      out_.count(1);
      if (recorded.*flag != other.*flag) out_.differ(fmt::format("{} has {} {}, in the replay {}", name, what, *(recorded.*flag), *(other.*flag)));
    }
    out_.count(recorded.ready.size());
    if (recorded.ready != other.ready) out_.differ(name + " counts other parameters as ready than the replay");
    if (!recorded.golden) return;
    out_.count(recorded.golden->size());
    if (recorded.golden != other.golden) out_.differ(name + " expects other counts of ready parameters than the replay");
  }

  const Run& run_;
  const Expressed& expressed_;
  const Replay& replay_;
  Differences out_;
  std::size_t rank_ = 0;
};

bool is_refused(const Run& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(), [](const RankRun& rank) { return !rank.refusal.empty(); });
}

// Every rank refuses, and so does the model, in the same words.
Comparison refusal(const Run& run, const std::optional<InputError>& refused) {
  Comparison out = left_out(run.name, run.version, "");
  out.outcome = Outcome::agrees;
  out.elements = 1;
  for (std::size_t r = 0; r < run.ranks.size() && out.why.empty(); ++r) {
    const std::string& words = run.ranks[r].refusal;
    if (refuses_as(refused, words)) continue;
    out.outcome = Outcome::differs;
    out.why = fmt::format("rank {}: Megatron-Core {}; here: {}", r, words.empty() ? "refuses nothing" : "refuses: " + words, refused ? refused->text() : "nothing is refused");
  }
  return out;
}

// Precondition: it is not refused.
// Recordings have a gradient of its own on every rank.
Contract contract_of(const Expressed& expressed) {
  Contract out = ::gradledger::megatron::megatron_contract(expressed.scenario, expressed.config, ::gradledger::megatron::behaviour_of(expressed.scenario.engine.as_of).value());
  out.shares.clear();
  out.share_of.clear();
  return out;
}

}  // namespace

Result<Comparison> judge(const Run& run) {
  const auto expressed = express(run);
  if (!expressed && expressed.error().where == inexpressible) return left_out(run.name, run.version, expressed.error().message);
  if (!expressed) return expressed.error();
  const auto refused = ::gradledger::megatron::megatron_refusal(expressed->scenario, expressed->config);
  if (is_refused(run)) return refusal(run, refused);
  if (refused) return left_out(run.name, run.version, refused->text());
  const auto timeline = unroll(expressed->scenario, expressed->scenario.script, contract_of(*expressed));
  if (!timeline) return left_out(run.name, run.version, timeline.error().text());
  const Comparison out = Judge(run, *expressed, Replay(*expressed, *timeline)).judge();
  if (out.outcome == Outcome::agrees && out.elements == 0) return InputError{"/ranks", "show nothing that could be compared; expected buffers or operations"};
  return out;
}

}  // namespace gradledger::conform::megatron
