#include "conformance/torch/compare.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/base/contract.h"
#include "conformance/differences.h"
#include "conformance/recording.h"
#include "conformance/torch/replay.h"
#include "conformance/torch/wrapper.h"

namespace gradledger::conform::torch {
namespace {

// What the recorder raises stands for any exception; it cut long texts.
constexpr const char* planned = "Planned: ";
constexpr const char* raised_here = "RuntimeError: raised by the script in a backward";
constexpr std::size_t text_length_max = 600;

// fully_shard's message about dtypes prints a Python set, whose order has no meaning; any other text stays as it is.
std::string with_ordered_set(std::string text) {
  if (text.find(" dtype but got {") == std::string::npos) return text;
  const std::size_t begin = text.find('{'), end = text.rfind('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return text;
  std::vector<std::string> members;
  const std::string inside = text.substr(begin + 1, end - begin - 1);
  for (std::size_t at = 0; at <= inside.size();) {
    const std::size_t comma = std::min(inside.find(", ", at), inside.size());
    members.push_back(inside.substr(at, comma - at));
    at = comma + 2;
  }
  std::sort(members.begin(), members.end());
  std::string ordered;
  for (const std::string& member : members) ordered += (ordered.empty() ? "" : ", ") + member;
  return text.replace(begin + 1, inside.size(), ordered);
}

// What the recorder itself raises where a block ends that did not begin, as the wrapper refused to enter it.
constexpr const char* recorders_own = "IndexError: pop from empty list";

bool same_error(const std::string& recorded, const std::string& replayed) {
  if (recorded == recorders_own) return replayed.empty();
  if (recorded.starts_with(planned)) return replayed == raised_here;
  return with_ordered_set(recorded) == with_ordered_set(replayed) || (recorded.size() >= text_length_max && replayed.starts_with(recorded));
}

class Judge {
 public:
  Judge(const Run& run, const Expressed& expressed, const Replay& replay) : run_(run), expressed_(expressed), replay_(replay), out_(run.name, run.version, run.operations) {}

  Comparison judge() {
    for (rank_ = 0; rank_ < run_.world && out_.none(); ++rank_) {
      std::uint32_t before = never;
      const std::size_t judged = expressed_.judged[rank_];
      for (std::size_t operation = 0; operation < judged && out_.none(); ++operation) {
        out_.at(rank_, operation);
        const std::uint32_t event = expressed_.events[rank_][operation];
        moment(run_.ranks[rank_][operation], event == never ? before : event, event != never, before);
        if (event != never) before = event;
      }
      out_.at(rank_, judged);
      // The collectives of the operation that does not end are still what they are.
      if (judged < run_.ranks[rank_].size() && out_.none()) last_calls(run_.ranks[rank_][judged].collectives, replay_.at(rank_, expressed_.events[rank_][judged]).collectives);
    }
    return end();
  }

 private:
  // A rank that loses its peer in the recording waits for it in the replay, and no other does.
  Comparison end() {
    bool lost = loses_a_peer(run_);
    for (std::size_t r = 0; r < run_.world; ++r) lost |= expressed_.judged[r] < run_.ranks[r].size();
    if (lost && replay_.stuck().empty()) out_.differ("a rank loses its peer, and the replay runs through");
    if (!lost && !replay_.stuck().empty()) out_.differ("the replay " + replay_.stuck());
    if (lost) return out_.finish("what follows on a rank whose peer is gone is not judged; the replay " + replay_.stuck());
    return out_.finish(run_.ended_by.empty() ? "" : "the recorder ended the run while its ranks went on; it is judged up to there");
  }

  // runs: whether the operation ran on the rank; else everything is as it was.
  void moment(const Moment& recorded, std::uint32_t event, bool runs, std::uint32_t before) {
    static const Moment nothing;
    const Moment& replayed = event == never ? nothing : replay_.at(rank_, event);
    const Moment& happened = runs ? replayed : nothing;
    errors(recorded.error, happened.error);
    collectives(recorded, happened);
    buffers(recorded, replayed);
    for (const Weights& weights : recorded.weights) this->weights(weights, happened, replay_.weights(rank_, event, weights.parameter));
    for (const Weights& applied : recorded.applied) this->applied(applied, event, before);
    if (recorded.weights.empty() && !happened.weights.empty()) unchanged(happened.weights, before);
    out_.number("norm", recorded.norm, happened.norm);
    out_.number("loss scale", recorded.loss_scale, happened.loss_scale);
  }

  void weights(const Weights& recorded, const Moment& happened, const std::vector<double>& replayed) {
    const std::string what = fmt::format("weights of parameter {}", recorded.parameter);
    out_.values(what, recorded.values, replayed);
    for (const Weights& other : happened.weights)
      if (other.parameter == recorded.parameter && other.offset != recorded.offset && !recorded.values.empty())
        out_.differ(fmt::format("{} begin at {}, in the replay at {}", what, recorded.offset, other.offset));
  }

  void errors(const std::string& recorded, const std::string& replayed) {
    out_.count(1);
    if (!same_error(recorded, replayed)) out_.differ(fmt::format("raises \"{}\", the replay \"{}\"", recorded, replayed));
  }

  // Of an operation that does not end: the replay's host issues without waiting, and so goes on behind the last.
  void last_calls(const std::vector<Collective>& recorded, std::vector<Collective> replayed) {
    if (replayed.size() > recorded.size()) replayed.resize(recorded.size());
    out_.calls(recorded, replayed);
  }

  void collectives(const Moment& recorded, const Moment& replayed) {
    out_.calls(recorded.collectives, replayed.collectives);
    for (const auto& [place, transfer] : recorded.transfers) {
      const auto other = replayed.transfers.find(place);
      if (other == replayed.transfers.end()) return out_.differ(fmt::format("collective {} of the replay does not end", place));
      out_.values(fmt::format("what collective {} is given", place), transfer.in, other->second.in);
      out_.values(fmt::format("what collective {} gives", place), transfer.out, other->second.out);
    }
  }

  void buffers(const Moment& recorded, const Moment& replayed) {
    for (const auto& [name, snapshot] : recorded.buffers) {
      const auto other = replayed.buffers.find(name);
      if (other == replayed.buffers.end()) return out_.differ("the replay has no " + name);
      if (snapshot.dtype != other->second.dtype) return out_.differ(fmt::format("{} is {}, in the replay {}", name, snapshot.dtype, other->second.dtype));
      if (snapshot.bucket_view_offset != other->second.bucket_view_offset)
        return out_.differ(fmt::format("{} lies at {} of larger storage, in the replay at {}", name, place(snapshot), place(other->second)));
      if (snapshot.offset != other->second.offset && !snapshot.values.empty())
        return out_.differ(fmt::format("{} begins at {}, in the replay at {}", name, snapshot.offset, other->second.offset));
      out_.values(name, snapshot.values, other->second.values);
    }
    for (const auto& [name, snapshot] : replayed.buffers)
      if (!recorded.buffers.contains(name)) return out_.differ("the replay has " + name + " besides");
  }

  static std::string place(const Snapshot& s) { return s.bucket_view_offset ? std::to_string(*s.bucket_view_offset) : "none"; }

  void applied(const Weights& recorded, std::uint32_t event, std::uint32_t before) {
    const std::vector<double> from = replay_.weights(rank_, before, recorded.parameter);
    std::vector<double> difference = replay_.weights(rank_, event, recorded.parameter);
    expects(from.size() == difference.size(), "a parameter's weights keep their number");
    for (std::size_t i = 0; i < from.size(); ++i) difference[i] = from[i] - difference[i];
    out_.values(fmt::format("what is applied to parameter {}", recorded.parameter), recorded.values, difference);
  }

  void unchanged(const std::vector<Weights>& weights, std::uint32_t before) {
    for (const Weights& w : weights) out_.values(fmt::format("weights of parameter {}, which do not change", w.parameter), replay_.weights(rank_, before, w.parameter), w.values);
  }

  const Run& run_;
  const Expressed& expressed_;
  const Replay& replay_;
  Differences out_;
  std::uint32_t rank_ = 0;
};

// Both refuse, in the same words.
Comparison refusal(const Run& run, const std::optional<InputError>& refused) {
  Comparison out = left_out(run.name, run.version, "");
  const bool alike = refuses_as(refused, run.refusal);
  out.outcome = alike ? Outcome::agrees : Outcome::differs;
  if (!alike) out.why = "the wrapper refuses: " + run.refusal + "; here: " + (refused ? refused->text() : "nothing is refused");
  out.elements = 1;
  return out;
}

}  // namespace

Result<Comparison> judge(const Run& run) {
  const auto expressed = express(run);
  if (!expressed && expressed.error().where == inexpressible) return left_out(run.name, run.version, expressed.error().message);
  if (!expressed) return expressed.error();
  const std::unique_ptr<Wrapper> wrapper = wrapper_of(run.framework);
  const auto refused = wrapper->refusal(expressed->scenario);
  if (!run.refusal.empty()) return refusal(run, refused);
  if (refused) return left_out(run.name, run.version, refused->text());
  const auto timeline = unroll(expressed->scenario, expressed->scenario.script, wrapper->contract(expressed->scenario));
  if (!timeline) return left_out(run.name, run.version, timeline.error().text());
  return Judge(run, *expressed, Replay(*expressed, *timeline, *wrapper)).judge();
}

}  // namespace gradledger::conform::torch
