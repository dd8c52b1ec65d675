#include "conformance/loops/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "sim/load.h"
#include "conformance/differences.h"
#include "conformance/loops/replay.h"
#include "conformance/loops/script.h"
#include "conformance/recording.h"

namespace gradledger::conform::loop_runs {
namespace {

using nlohmann::json;

constexpr double rounding = std::numeric_limits<float>::epsilon() / 2;  // of one fp32 operation

// As the recorder wrote it. A share that the fp32 of either side rounds across a digit would show as another: none of small whole numbers does.
std::string six_decimals(double x) { return fmt::format("{:.6f}", x == 0 ? 0.0 : x); }

json operations_of(const Expressed& expressed) {
  json out = json::array();
  for (const Step& step : expressed.micro_batches) out.push_back({"epoch", step.epoch, "batch", step.batch});
  return out;
}

class Judge {
 public:
  Judge(const Run& run, const Expressed& expressed, const Timeline& timeline)
      : run_(run),
        expressed_(expressed),
        timeline_(timeline),
        replay_(expressed.scenario, timeline),
        operations_(operations_of(expressed)),
        out_(run.name, run.version, operations_) {}

  Comparison judge() {
    for (rank_ = 0; rank_ < run_.world && out_.none(); ++rank_) {
      const RankRun& rank = run_.ranks[rank_];
      out_.at(rank_, 0);
      out_.count(1);
      if (!rank.error.empty()) out_.differ("raises \"" + rank.error + "\", the replay nothing");
      micro_batches(rank);
      updates(rank);
      if (rank.tells_left) {
        out_.at(rank_, expressed_.micro_batches.size() - 1);
        gradient("what is left in the gradient", rank.left, static_cast<std::uint32_t>(timeline_.events.size() - 1));
      }
    }
    if (!replay_.stuck().empty()) out_.differ("the replay " + replay_.stuck());
    return out_.finish("");
  }

 private:
  // Both sides round. Of either: the sum over the tokens of a sample, in which the recorder's loss takes it; its mean; what loop and wrapper multiply and
  // divide by, at most four factors; and the sum over the ranks and micro-batches of the update.
  double roundings(std::uint32_t sample) const { return run_.tokens[sample] + 5.0 + static_cast<double>(run_.world) * static_cast<double>(expressed_.micro_batches.size()); }

  // around: the size of the numbers whose difference it is.
  void value(const std::string& what, std::uint32_t sample, double recorded, double replayed, double around) {
    out_.count(1);
    const double bound = 2 * rounding * (roundings(sample) * std::abs(replayed) + around);
    if (!(std::abs(recorded - replayed) <= bound)) out_.differ(fmt::format("{}[{}] is {}, in the replay {}", what, sample, recorded, replayed));
  }

  void gradient(const std::string& what, const std::optional<std::vector<double>>& recorded, std::uint32_t event) {
    const auto replayed = replay_.gradient(rank_, event);
    if (recorded.has_value() != replayed.has_value())
      return out_.differ(fmt::format("{} is {}, in the replay there is {}", what, recorded ? "there" : "none", replayed ? "one" : "none"));
    out_.count(1);
    if (!recorded) return;
    for (std::uint32_t i = 0; i < recorded->size(); ++i) value(what, i, (*recorded)[i], (*replayed)[i], 0);
  }

  void micro_batches(const RankRun& rank) {
    const bool whole = !rank.micro_batches.empty();
    const std::size_t recorded = whole ? rank.micro_batches.size() : rank.samples.size();
    if (recorded != expressed_.micro_batches.size()) return out_.differ(fmt::format("runs {} micro-batches, the replay {}", recorded, expressed_.micro_batches.size()));
    for (std::size_t m = 0; m < recorded && out_.none(); ++m) {
      out_.at(rank_, m);
      const Step& step = expressed_.micro_batches[m];
      const std::uint32_t sample = whole ? rank.micro_batches[m].sample : rank.samples[m];
      out_.count(1);
      if (sample != sample_of(run_, rank_, step.batch)) return out_.differ(fmt::format("has sample {}, the replay {}", sample, sample_of(run_, rank_, step.batch)));
      if (whole) micro_batch(rank.micro_batches[m], step, expressed_.items[rank_][m]);
    }
  }

  void micro_batch(const MicroBatch& recorded, const Step& step, std::optional<double> items) {
    out_.count(2);
    if (recorded.syncs != step.syncs) out_.differ(recorded.syncs ? "steps behind this micro-batch, the replay does not" : "does not step behind this micro-batch, the replay does");
    if (recorded.gradient) return gradient("the gradient", recorded.gradient, step.event);
    if (recorded.items != items) out_.differ(fmt::format("counts {} items, the replay {}", text(recorded.items), text(items)));
  }

  static std::string text(std::optional<double> number) { return number ? fmt::format("{}", *number) : "no"; }

  void updates(const RankRun& rank) {
    if (rank.steps.size() != expressed_.updates.size()) return out_.differ(fmt::format("makes {} updates, the replay {}", rank.steps.size(), expressed_.updates.size()));
    for (std::size_t u = 0; u < rank.steps.size() && out_.none(); ++u) {
      const std::uint32_t event = expressed_.updates[u];
      const std::vector<double> before = event == 0 ? std::vector<double>(run_.tokens.size()) : replay_.weights(rank_, event - 1), behind = replay_.weights(rank_, event);
      for (std::uint32_t i = 0; i < before.size() && out_.none(); ++i) {
        const double applied = before[i] - behind[i];
        // What is not updated is what it was, bit for bit.
        const double around = applied == 0 ? 0 : std::abs(before[i]) + std::abs(behind[i]);
        value(fmt::format("update {}", u), i, rank.steps[u][i], applied, around);
        out_.count(1);
        const std::string recorded = six_decimals(rank.per_token[u][i]), replayed = six_decimals(applied / run_.tokens[i]);
        if (recorded != replayed) out_.differ(fmt::format("update {} weighs a token of sample {} by {}, in the replay by {}", u, i, recorded, replayed));
      }
    }
  }

  const Run& run_;
  const Expressed& expressed_;
  const Timeline& timeline_;
  const Replay replay_;
  const json operations_;
  Differences out_;
  std::uint32_t rank_ = 0;
};

// Every rank is refused, in the package's words.
Comparison refused(const Run& run, const std::string& refusal) {
  Comparison out = left_out(run.name, run.version, "");
  out.outcome = Outcome::agrees;
  out.elements = run.world;
  for (std::size_t r = 0; r < run.ranks.size(); ++r)
    if (run.ranks[r].error != refusal) {
      out.outcome = Outcome::differs;
      out.why = fmt::format("rank {}: raises \"{}\"; here \"{}\" is refused", r, run.ranks[r].error, refusal);
    }
  return out;
}

// Which events the micro-batches and updates of the script have become.
void find_events(const Timeline& timeline, Expressed& out) {
  for (std::size_t m = 0; m < out.micro_batches.size(); ++m) out.micro_batches[m].event = timeline.backwards[m].event;
  for (std::uint32_t e = 0; e < timeline.events.size(); ++e)
    if (timeline.events[e].is<events::Step>()) out.updates.push_back(e);
}

}  // namespace

Result<Comparison> judge(const Run& run) {
  auto result = express(run);
  if (!result && result.error().where == inexpressible) return left_out(run.name, run.version, result.error().message);
  if (!result) return result.error();
  Expressed expressed = std::move(result).value();
  if (!expressed.refusal.empty()) return refused(run, expressed.refusal);
  const auto timeline = make_timeline(expressed.scenario);
  if (!timeline) return left_out(run.name, run.version, timeline.error().text());
  find_events(*timeline, expressed);
  return Judge(run, expressed, *timeline).judge();
}

}  // namespace gradledger::conform::loop_runs
