#include "verbs/compare.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "ref/probes.h"
#include "sim/base/hash.h"
#include "verbs/command.h"

namespace gradledger::verbs {
namespace {

constexpr std::array<std::string_view, 2> producers{"host", "gpu"};

std::pair<std::string, std::string> names_of(const std::string& text) {
  const std::size_t comma = text.find(',');
  return {text.substr(0, comma), text.substr(comma + 1)};
}

class RaceSink final : public TraceSink {
 public:
  void race(const RaceRecord&) override { any = true; }
  bool any = false;
};

// One side, for as many runs as are wanted.
class Side {
 public:
  Side(const Loaded& loaded, const Options& options, std::string_view name) : producer_(make_producer(loaded, as(options, name))) {}

  Transcript run(const GradientSource& source, const Schedule& schedule, std::optional<Transcript::Place> kept) {
    Transcript transcript(kept);
    producer_->run(source, {.schedule = schedule}, transcript);
    return transcript;
  }

 private:
  static Options as(Options options, std::string_view name) {
    if (name == "host") options.devices = nullptr;
    return options;
  }
  std::unique_ptr<Producer> producer_;
};

bool has_races(const Loaded& loaded, const GradientSource& source, const Options& options) {
  const auto host = gradledger::make_producer(loaded.scenario, loaded.timeline, {.program_bytes_max = program_bytes_max(loaded, options)});
  RaceSink sink;
  host->run(source, {.check_streams = true}, sink);
  return sink.any;
}

}  // namespace

std::string check_compare(const std::string& text) {
  const auto known = [](const std::string& name) { return std::find(producers.begin(), producers.end(), name) != producers.end(); };
  const auto [one, other] = names_of(text);
  if (text.find(',') != text.npos && known(one) && known(other)) return "";
  return fmt::format("\"{}\" names no two producers; expected host,gpu, or another pair of {}", text, fmt::join(producers, " and "));
}

Compared compare_producers(const Loaded& loaded, const Options& options) {
  const auto [one_name, other_name] = names_of(options.compare);
  const auto schedule = schedule_from(options);
  expects(schedule.ok(), "the schedule was checked before");
  std::vector<GradientKind> kinds{GradientKind::normal, GradientKind::adversarial};
  const GradientKind own = loaded.scenario.gradients.kind;
  if (own == GradientKind::values) kinds.push_back(own);
  Side one(loaded, options, one_name), other(loaded, options, other_name);
  Compared out;
  for (const GradientKind kind : kinds) {
    const auto values = ref::value_source(loaded.scenario, loaded.timeline, kind, hash_keys({options.seed, loaded.scenario.gradients.seed}));
    const ref::PlantedSource source(*values, loaded.timeline);
    if (out.runs == 0 && has_races(loaded, source, options)) {
      out.races = true;
      return out;
    }
    const Transcript left = one.run(source, *schedule, std::nullopt);
    out.difference = first_difference(left, other.run(source, *schedule, std::nullopt));
    ++out.runs;
    for (const auto& [place, entries] : left.entries()) out.records += entries.size();
    if (!out.difference) continue;
    // Once more, for the bits of the event where they part. A run that differs from itself may part elsewhere, or not at all.
    const Transcript::Place place{out.difference->event, out.difference->rank};
    const auto again = first_difference(one.run(source, *schedule, place), other.run(source, *schedule, place));
    if (again) out.difference = again;
    else out.difference->what += " (not in a second run: a producer does not repeat itself)";
    out.gradients = kind == GradientKind::normal ? "normal" : kind == GradientKind::adversarial ? "adversarial" : "the given";
    return out;
  }
  return out;
}

std::string text_of(const Compared& compared, const Loaded& loaded, const Options& options) {
  if (compared.races) return "not compared: the program has a race, so its values are the schedule's";
  if (!compared.difference) return fmt::format("equal: {} records of {} runs", compared.records, compared.runs);
  const TraceDifference& d = *compared.difference;
  const auto [one, other] = names_of(options.compare);
  std::string text = fmt::format("differ first at {}, rank {}, with {} gradients: {}", loaded.timeline.describe(d.event), d.rank, compared.gradients, d.what);
  if (d.elements > 0) text += fmt::format(", {} of {} elements, first {}", d.elements, d.of, d.first);
  return text + fmt::format(": {} by {}, {} by {}", d.one, one, d.other, other);
}

report::ProducersReport compare_report(const Loaded& loaded, const Options& options) {
  const Compared compared = compare_producers(loaded, options);
  report::ProducersReport out;
  out.command = repeat_command({loaded.path}, options);
  out.scenario = loaded.scenario.name;
  out.file = loaded.path.string();
  out.compare = options.compare;
  out.equal = !compared.difference && !compared.races;
  out.races = compared.races;
  out.runs = compared.runs;
  out.records = compared.records;
  out.text = text_of(compared, loaded, options);
  return out;
}

}  // namespace gradledger::verbs
