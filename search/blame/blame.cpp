#include "search/blame/blame.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include "search/blame/documented_form.h"
#include "search/blame/window.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"

namespace gradledger::search {
namespace {

using ref::Blame;
using ref::Finding;
using ref::Whose;

// What a form of the script shows, once it is asked for.
struct Seen {
  std::vector<std::optional<std::uint32_t>> window;
  std::vector<std::pair<ref::FindingClass, std::uint32_t>> findings;  // with their windows

  // Nothing where the window is not in that form.
  std::optional<bool> shows(ref::FindingClass finding, std::uint32_t w) const {
    if (w >= window.size() || !window[w]) return std::nullopt;
    return std::find(findings.begin(), findings.end(), std::pair{finding, *window[w]}) != findings.end();
  }
};

class Blamer {
 public:
  Blamer(const Scenario& scenario, const Timeline& timeline, const Judge& judge)
      : scenario_(scenario), timeline_(timeline), judge_(judge), misuses_(framework_of(scenario).use_of(scenario, timeline).misuses) {}

  Blame of(const Finding& f) {
    const std::uint32_t window = window_of(f, timeline_);
    const Misuse* misuse = reaching(window, f);
    if (!misuse) return {Whose::framework, "", "The script keeps to what is documented."};
    const std::string at = timeline_.describe(misuse->event);
    const bool same_window = misuse->step == window;
    const auto gone = same_window ? gone_when_documented(f.finding, window) : gone_without(f.finding, window);
    if (!gone.value_or(true))  // a script that has no other form is nothing but that
      return {Whose::framework, "", fmt::format("{} The script breaks that at {}, and shows this without it too.", misuse->rule->says, at)};
    const char* shown = !gone ? "" : same_window ? "; written as documented it does not show this" : "; without that window it does not show this";
    return {Whose::usage, std::string(misuse->rule->id), fmt::format("{} The script breaks that at {}{}.", misuse->rule->says, at, shown)};
  }

 private:
  // The first rule that is broken in the finding's window; else in the latest window before it.
  const Misuse* reaching(std::uint32_t window, const Finding& f) const {
    // Buffers are held to the documentation, whatever the loop means.
    const bool of_buffers = holds_gradients(f.role) && f.role != Role::applied_gradient;
    const auto of_loop = [](const Misuse& m) { return m.rule->of_loop; };
    const Misuse* out = nullptr;
    for (const Misuse& m : misuses_)
      if (!(of_buffers && of_loop(m)) && m.step <= window && (!out || m.step > out->step)) out = &m;
    return out;
  }

  std::optional<bool> gone_when_documented(ref::FindingClass finding, std::uint32_t window) {
    std::optional<bool> out;
    for (const Form form : {Form::calls, Form::counted})
      if (const auto shows = shows_in(form, finding, window)) out = out.value_or(false) || !*shows;
    return out;
  }

  std::optional<bool> gone_without(ref::FindingClass finding, std::uint32_t window) {
    const auto shows = shows_in(Form::left_out, finding, window);
    return shows ? std::optional(!*shows) : std::nullopt;
  }

  std::optional<bool> shows_in(Form form, ref::FindingClass finding, std::uint32_t window) {
    auto& seen = seen_[static_cast<std::size_t>(form)];
    if (!seen) {
      seen.emplace();
      if (const auto written = documented_form(scenario_, timeline_, misuses_, form)) {
        const auto timeline = make_timeline(written->scenario);
        for (const Finding& f : judge_(written->scenario, *timeline).findings) seen->findings.emplace_back(f.finding, window_of(f, *timeline));
        seen->window = written->window;
      }
    }
    return seen->shows(finding, window);
  }

  const Scenario& scenario_;
  const Timeline& timeline_;
  const Judge& judge_;
  const std::vector<Misuse> misuses_;
  std::array<std::optional<Seen>, 3> seen_;
};

}  // namespace

void assign_blame(const Scenario& scenario, const Timeline& timeline, std::vector<Finding>& findings, const Judge& judge) {
  if (findings.empty()) return;
  Blamer blamer(scenario, timeline, judge);
  for (Finding& f : findings) f.blame = blamer.of(f);
}

}  // namespace gradledger::search
