#include "audit/meaning.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "ref/describe.h"

namespace gradledger::audit {
namespace {

enum class Kind { sgd, adaptive, unknown };

Kind kind_of(const std::string& optimizer) {
  std::string name = optimizer;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name.find("adam") != name.npos || name.find("lamb") != name.npos || name.find("adagrad") != name.npos) return Kind::adaptive;
  return name == "sgd" ? Kind::sgd : Kind::unknown;
}

std::string of_a_factor(Kind kind, double factor, const std::string& optimizer, bool clips) {
  const std::string times = ref::weight_text(factor);
  if (clips)
    return fmt::format(
        "Every gradient counts {} times, so the norm that clipping looks at does too: it clips where the true norm is {} times max_norm. What is clipped has the right length.",
        times, ref::weight_text(1 / factor));
  if (kind == Kind::sgd)
    return fmt::format("Every gradient counts {} times: with SGD that is a learning rate {} times the one that was set, and with weight decay another balance of the two.", times,
                       times);
  if (kind == Kind::adaptive)
    return fmt::format(
        "Every gradient counts {} times. {} divides by the gradient's own size, so its updates stay the same but for eps; reported gradient norms are {} times the true ones.",
        times, optimizer, times);
  return fmt::format("Every gradient counts {} times. What {} makes of a constant factor is not known here.", times, optimizer);
}

std::string of_lost(Kind kind, const Effects& effects, const std::string& optimizer) {
  const auto at = std::find_if(effects.list.begin(), effects.list.end(), [](const report::AuditEffect& e) { return e.kind == "lost"; });
  if (at->of > 0 && at->micro_batches == at->of) return "No data of these windows reaches an update: the step moves weights by what was left over, by weight decay, or not at all.";
  std::string out =
      at->of > 0 ? fmt::format("An update sees {} of {} micro-batches: the batch that trains is {} of the one that was set, and the rest of the data was computed and thrown away.",
                               at->of - at->micro_batches, at->of, ref::weight_text(static_cast<double>(at->of - at->micro_batches) / at->of))
                 : std::string("A part of the data was computed and thrown away: the batch that trains is smaller than the one that was set.");
  if (kind == Kind::adaptive)
    out += fmt::format(" {} makes up for the shorter gradient, so loss curves look usual; it does not make up for the missing data, and its estimates are noisier.", optimizer);
  if (kind == Kind::sgd) out += " The gradient is shorter by the share that is missing, so the effective learning rate is smaller too.";
  return out;
}

}  // namespace

std::vector<std::string> meaning_of(const Effects& effects, const Scenario& scenario, const Timeline& timeline, const std::string& optimizer) {
  std::vector<std::string> out;
  const Kind kind = kind_of(optimizer);
  const bool clips = timeline.contract.clip.max_norm > 0;
  if (effects.lost) out.push_back(of_lost(kind, effects, optimizer));
  if (effects.no_update) out.emplace_back("No gradient is applied where the loop means to update: the framework takes the call of step() for one of several of a window.");
  if (effects.partly) out.emplace_back("Some elements of the model are trained on fewer micro-batches than others: their gradients are those of another batch.");
  if (effects.kept_private)
    out.push_back(fmt::format("Each rank steps on its own data there instead of the average: {}",
                              scenario.world_size > 1 ? "ranks, or the parts of the model that they hold, drift apart, and no scale of the optimizer "
                                                        "makes up for it."
                                                      : "with one rank there is no other."));
  if (effects.stale)
    out.emplace_back("Gradients of an earlier window, taken at older weights, are added to the update once more: a momentum that nobody set, and data that counts twice.");
  if (effects.factor) out.push_back(of_a_factor(kind, *effects.factor, optimizer, clips));
  else if (effects.scaled)
    out.emplace_back("Micro-batches, ranks or windows count by different factors: that changes the direction of the update, which no optimizer's scale makes up for.");
  if (effects.races) out.emplace_back("With a race the values depend on timing: how often they are wrong, no replay can say.");
  if (effects.stops) out.emplace_back("Training stops there, so nothing is lost unseen.");
  if (out.empty() && effects.other) out.emplace_back("The weights of contributions balance; what is wrong is something else, named above.");
  return out;
}

}  // namespace gradledger::audit
