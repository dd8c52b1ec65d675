#include "conformance/torch/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "conformance/recording.h"
#include "conformance/torch/replay.h"
#include "conformance/torch/wrapper.h"

namespace gradledger::conform::torch {
namespace {

// Bit for bit, but that every NaN is one.
bool same(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) || (std::isnan(a) && std::isnan(b)); }

std::string text(const Collective& c) { return fmt::format("{} {} of {} {}", c.kind, c.operation, c.numel, c.dtype); }

// What the recorder raises stands for any exception; it cut long texts.
constexpr const char* planned = "Planned: ";
constexpr const char* raised_here = "RuntimeError: raised by the script in a backward";
constexpr std::size_t text_length_max = 600;

// Python prints a set in an order of no meaning.
std::string with_ordered_set(std::string text) {
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

bool same_error(const std::string& recorded, const std::string& replayed) {
  if (recorded.starts_with(planned)) return replayed == raised_here;
  return with_ordered_set(recorded) == with_ordered_set(replayed) || (recorded.size() >= text_length_max && replayed.starts_with(recorded));
}

class Judge {
 public:
  Judge(const Run& run, const Expressed& expressed, const Replay& replay) : run_(run), expressed_(expressed), replay_(replay) {}

  Comparison judge() {
    out_.name = run_.name;
    out_.version = run_.version;
    for (rank_ = 0; rank_ < run_.world && agrees(); ++rank_) {
      std::uint32_t before = never;
      const std::size_t judged = expressed_.judged[rank_];
      for (operation_ = 0; operation_ < judged && agrees(); ++operation_) {
        const std::uint32_t event = expressed_.events[rank_][operation_];
        moment(run_.ranks[rank_][operation_], event == never ? before : event, event != never, before);
        if (event != never) before = event;
      }
      // The collectives of the operation that does not end are still what they are.
      if (judged < run_.ranks[rank_].size() && agrees()) last_calls(run_.ranks[rank_][judged].collectives, replay_.at(rank_, expressed_.events[rank_][judged]).collectives);
    }
    end();
    return out_;
  }

 private:
  bool agrees() const { return out_.why.empty(); }

  void differ(const std::string& how) {
    if (agrees()) out_.why = fmt::format("rank {}, operation {} {}: {}", rank_, operation_, operation_ < run_.operations.size() ? run_.operations[operation_].dump() : "", how);
  }

  // A rank that loses its peer in the recording waits for it in the replay, and no other does.
  void end() {
    bool lost = loses_a_peer(run_);
    for (std::size_t r = 0; r < run_.world; ++r) lost |= expressed_.judged[r] < run_.ranks[r].size();
    if (lost && replay_.stuck().empty()) differ("a rank loses its peer, and the replay runs through");
    if (!lost && !replay_.stuck().empty()) differ("the replay " + replay_.stuck());
    if (!agrees()) out_.outcome = Outcome::differs;
    else if (!lost && !run_.ended_by.empty()) out_.why = "the recorder ended the run while its ranks went on; it is judged up to there";
    else if (lost) out_.why = "what follows on a rank whose peer is gone is not judged; the replay " + replay_.stuck();
  }

  // runs: whether the operation ran on the rank; else everything is as it was.
  void moment(const Moment& recorded, std::uint32_t event, bool runs, std::uint32_t before) {
    static const Moment nothing;
    const Moment& replayed = event == never ? nothing : replay_.at(rank_, event);
    const Moment& happened = runs ? replayed : nothing;
    errors(recorded.error, happened.error);
    collectives(recorded, happened);
    buffers(recorded, replayed);
    for (const Weights& weights : recorded.weights) this->weights(weights, happened, replay_.weights(rank_, event == never ? 0 : event, weights.parameter, weights.values.size()));
    for (const Weights& applied : recorded.applied) this->applied(applied, event, before);
    if (recorded.weights.empty() && !happened.weights.empty()) unchanged(happened.weights, before);
    number("norm", recorded.norm, happened.norm);
    number("loss scale", recorded.loss_scale, happened.loss_scale);
  }

  void weights(const Weights& recorded, const Moment& happened, const std::vector<double>& replayed) {
    const std::string what = fmt::format("weights of parameter {}", recorded.parameter);
    values(what, recorded.values, replayed);
    for (const Weights& other : happened.weights)
      if (other.parameter == recorded.parameter && other.offset != recorded.offset && !recorded.values.empty())
        differ(fmt::format("{} begin at {}, in the replay at {}", what, recorded.offset, other.offset));
  }

  void errors(const std::string& recorded, const std::string& replayed) {
    ++out_.elements;
    if (!same_error(recorded, replayed)) differ(fmt::format("raises \"{}\", the replay \"{}\"", recorded, replayed));
  }

  void calls(const std::vector<Collective>& recorded, const std::vector<Collective>& replayed) {
    for (std::size_t i = 0; i < std::max(recorded.size(), replayed.size()) && agrees(); ++i) {
      if (i >= recorded.size()) return differ("the replay issues " + text(replayed[i]) + " besides");
      if (i >= replayed.size()) return differ("the replay does not issue " + text(recorded[i]));
      if (recorded[i] != replayed[i]) return differ(fmt::format("issues {}, the replay {}", text(recorded[i]), text(replayed[i])));
      ++out_.collectives;
    }
  }

  // Of an operation that does not end: the replay's host issues without waiting, and so goes on behind the last.
  void last_calls(const std::vector<Collective>& recorded, std::vector<Collective> replayed) {
    if (replayed.size() > recorded.size()) replayed.resize(recorded.size());
    calls(recorded, replayed);
  }

  void collectives(const Moment& recorded, const Moment& replayed) {
    calls(recorded.collectives, replayed.collectives);
    for (const auto& [place, transfer] : recorded.transfers) {
      const auto other = replayed.transfers.find(place);
      if (other == replayed.transfers.end()) return differ(fmt::format("collective {} of the replay does not end", place));
      values(fmt::format("what collective {} is given", place), transfer.in, other->second.in);
      values(fmt::format("what collective {} gives", place), transfer.out, other->second.out);
    }
  }

  void buffers(const Moment& recorded, const Moment& replayed) {
    for (const auto& [name, snapshot] : recorded.buffers) {
      const auto other = replayed.buffers.find(name);
      if (other == replayed.buffers.end()) return differ("the replay has no " + name);
      if (snapshot.dtype != other->second.dtype) return differ(fmt::format("{} is {}, in the replay {}", name, snapshot.dtype, other->second.dtype));
      if (snapshot.bucket_view_offset != other->second.bucket_view_offset)
        return differ(fmt::format("{} lies at {} of larger storage, in the replay at {}", name, place(snapshot), place(other->second)));
      if (snapshot.offset != other->second.offset && !snapshot.values.empty())
        return differ(fmt::format("{} begins at {}, in the replay at {}", name, snapshot.offset, other->second.offset));
      values(name, snapshot.values, other->second.values);
    }
    for (const auto& [name, snapshot] : replayed.buffers)
      if (!recorded.buffers.contains(name)) return differ("the replay has " + name + " besides");
  }

  static std::string place(const Snapshot& s) { return s.bucket_view_offset ? std::to_string(*s.bucket_view_offset) : "none"; }

  void applied(const Weights& recorded, std::uint32_t event, std::uint32_t before) {
    const std::size_t n = recorded.values.size();
    std::vector<double> difference = before == never ? std::vector<double>(n) : replay_.weights(rank_, before, recorded.parameter, n);
    const std::vector<double> after = replay_.weights(rank_, event, recorded.parameter, n);
    for (std::size_t i = 0; i < std::min(difference.size(), after.size()); ++i) difference[i] -= after[i];
    values(fmt::format("what is applied to parameter {}", recorded.parameter), recorded.values, difference);
  }

  void unchanged(const std::vector<Weights>& weights, std::uint32_t before) {
    for (const Weights& w : weights)
      values(fmt::format("weights of parameter {}, which do not change", w.parameter),
             before == never ? std::vector<double>(w.values.size()) : replay_.weights(rank_, before, w.parameter, w.values.size()), w.values);
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
  std::uint32_t rank_ = 0;
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

// Both refuse, in the same words.
Comparison refusal(const Run& run, const std::optional<InputError>& refused) {
  Comparison out = left_out(run, "");
  const bool alike = refused && refused->message.find(run.refusal) != std::string::npos;
  out.outcome = alike ? Outcome::agrees : Outcome::differs;
  if (!alike) out.why = "the wrapper refuses: " + run.refusal + "; here: " + (refused ? refused->text() : "nothing is refused");
  out.elements = 1;
  return out;
}

}  // namespace

Result<Comparison> judge(const Run& run) {
  const auto expressed = express(run);
  if (!expressed && expressed.error().where == inexpressible) return left_out(run, expressed.error().message);
  if (!expressed) return expressed.error();
  const std::unique_ptr<Wrapper> wrapper = wrapper_of(run.framework);
  const auto refused = wrapper->refusal(expressed->scenario);
  if (!run.refusal.empty()) return refusal(run, refused);
  if (refused) return left_out(run, refused->text());
  const auto timeline = unroll(expressed->scenario, expressed->scenario.script, wrapper->contract(expressed->scenario));
  if (!timeline) return left_out(run, timeline.error().text());
  return Judge(run, *expressed, Replay(*expressed, *timeline, *wrapper)).judge();
}

}  // namespace gradledger::conform::torch
