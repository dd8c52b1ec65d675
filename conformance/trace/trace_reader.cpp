#include "conformance/trace/trace_reader.h"

#include <algorithm>

#include "conformance/files.h"
#include "conformance/trace/capabilities.h"
#include "conformance/trace/pass_key.h"
#include "sim/scenario/json_reader.h"

namespace gradledger::conform {
namespace {

using nlohmann::json;

constexpr const char* mark = "gradledger_trace";
constexpr std::uint64_t passes_max = 1u << 20;
constexpr std::uint64_t notes_max = 1024;

struct Pass {
  std::string key;
  std::vector<Record> records;
  RunSummary summary;
};

// Hands a pass out to whoever asks for its key; several of one key in their order, the last one again and again.
class TraceProducer final : public Producer {
 public:
  TraceProducer(const Workload& workload, const Timeline& timeline, const Capabilities& capabilities, std::vector<Pass> passes)
      : workload_(workload), timeline_(timeline), capabilities_(capabilities), passes_(std::move(passes)) {
    for (std::size_t i = 0; i < passes_.size(); ++i) by_key_[passes_[i].key].push_back(i);
  }

  std::string_view name() const override { return "trace"; }
  Capabilities capabilities() const override { return capabilities_; }

  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override {
    const std::string key = capabilities_.one_pass ? passes_.front().key : key_text(key_of(workload_, timeline_, source, options));
    const auto found = by_key_.find(key);
    if (found == by_key_.end())
      throw PassNotRecorded("holds no pass with the gradients that the oracle asks for (" + key + (options.linear ? ", of weights" : ", of values") + "), but " +
                            std::to_string(passes_.size()) + " others; expected a trace of the same version of gradledger");
    std::size_t& asked = asked_[key];
    const Pass& pass = passes_[found->second[std::min(asked++, found->second.size() - 1)]];
    for (const Record& record : pass.records) play(record, sink);
    return pass.summary;
  }

 private:
  const Workload& workload_;
  const Timeline& timeline_;
  Capabilities capabilities_;
  std::vector<Pass> passes_;
  std::map<std::string, std::vector<std::size_t>> by_key_;
  std::map<std::string, std::size_t> asked_;
};

// Puts the lines behind the first one together.
class PassReader {
 public:
  PassReader(const Workload& workload, const Timeline& timeline, std::uint64_t bytes_max) : workload_(workload), timeline_(timeline), left_(bytes_max) {}

  bool ended() const { return ended_; }
  std::vector<Pass> take() { return std::move(passes_); }
  std::vector<std::string> take_notes() { return std::move(notes_); }

  // Throws Unreadable.
  void line(const Field& line) {
    if (ended_) line.fail("comes after the last line of the trace");
    if (line.has("end")) return end(line);
    if (line.has("pass")) return begin(line);
    if (passes_.empty() || complete_) line.fail("stands in no pass; expected {\"pass\": ...} before it");
    Record record = record_of(line, workload_, timeline_);
    if (const auto* o = std::get_if<KeptObservation>(&record)) keep_order(line, o->rank, o->event);
    if (const auto* f = std::get_if<StepRecord>(&record)) keep_order(line, f->rank, f->event);
    if (const auto* done = std::get_if<EventDone>(&record)) {
      keep_order(line, done->rank, done->event);
      next_event_[done->rank] = done->event + 1;
    }
    const std::uint64_t bytes = bytes_of(record);
    if (bytes > left_) line.fail("makes the trace take more memory than a judgement may; see --memory-limit");
    left_ -= bytes;
    if (auto* summary = std::get_if<RunSummary>(&record)) {
      passes_.back().summary = std::move(*summary);
      complete_ = true;
    } else {
      passes_.back().records.push_back(std::move(record));
    }
  }

 private:
  // What a rank shows comes in the order of its script, and nothing of an event after it is through with it.
  void keep_order(const Field& line, std::uint32_t rank, std::uint32_t event) const {
    if (event < next_event_[rank])
      line.fail("is of event " + std::to_string(event) + " of rank " + std::to_string(rank) + ", which is through with event " + std::to_string(next_event_[rank] - 1) +
                "; expected the order of the script");
  }

  void begin(const Field& line) {
    if (!passes_.empty() && !complete_) line.fail("begins before the last pass has its summary");
    if (line.at("pass").count(0, passes_max) != passes_.size()) line.at("pass").fail("is not the number of the next pass, " + std::to_string(passes_.size()));
    passes_.push_back({line.at("key").text(16), {}, {}});
    complete_ = false;
    next_event_.assign(workload_.world_size, 0);
  }

  void end(const Field& line) {
    if (!line.at("end").flag() || (!passes_.empty() && !complete_)) line.fail("comes before the last pass has its summary");
    if (line.at("passes").count(0, passes_max) != passes_.size()) line.at("passes").fail("is not the number of passes that there are, " + std::to_string(passes_.size()));
    if (passes_.empty()) line.fail("ends a trace without a pass; judging nothing does not pass");
    if (line.has("replaced"))
      for (const Field& note : line.at("replaced").entries(notes_max)) notes_.push_back(note.text(limits::name_length_max * 16));
    ended_ = true;
  }

  const Workload& workload_;
  const Timeline& timeline_;
  std::uint64_t left_;
  std::vector<Pass> passes_;
  std::vector<std::string> notes_;
  std::vector<std::uint32_t> next_event_;  // by rank: that it is not through with
  bool complete_ = false, ended_ = false;
};

// What a producer may show, and no record does.
std::vector<std::string> lacking(const std::vector<Pass>& passes, const Timeline& timeline) {
  bool applied = false, accumulators = false, weights = false, collectives = timeline.world_size == 1, memory = false, decisions = false;
  for (const Pass& pass : passes)
    for (const Record& record : pass.records) {
      if (const auto* o = std::get_if<KeptObservation>(&record)) {
        applied = applied || o->role == Role::applied_gradient;
        accumulators = accumulators || (holds_gradients(o->role) && o->role != Role::applied_gradient);
        weights = weights || o->role == Role::parameter;
      }
      if (const auto* fact = std::get_if<StepRecord>(&record)) decisions = decisions || fact->fact == StepFact::skipped || fact->fact == StepFact::updated;
      collectives = collectives || std::holds_alternative<CollectiveRecord>(record);
      memory = memory || std::holds_alternative<KeptMemory>(record);
    }
  std::vector<std::string> out;
  for (const auto& [shown, what] : {std::pair{accumulators, "accumulators"},
                                    {applied, "gradients that steps apply"},
                                    {weights, "weights"},
                                    {decisions, "whether a step updates or skips"},
                                    {collectives, "collectives"},
                                    {memory, "memory"}})
    if (!shown) out.emplace_back(what);
  return out;
}

TraceHead head_of(const Field& line) {
  TraceHead out;
  if (line.at(mark).json() != 1) line.at(mark).fail("is a version that is not known here; expected 1");
  out.scenario = line.at("scenario").object();
  out.origin.driver = line.at("driver").text(limits::name_length_max);
  for (const auto& [package, version] : line.at("versions").members()) out.origin.versions[package] = version.text(limits::name_length_max);
  out.capabilities = capabilities_of(line.at("capabilities"));
  if (line.has("seed")) {
    if (!line.at("seed").json().is_number_unsigned()) line.at("seed").fail("is no whole number");
    out.origin.seed = line.at("seed").json().get<std::uint64_t>();
  }
  return out;
}

// Calls `use` with the document; errors have the place of the line.
template <class Use>
std::optional<InputError> with_document(const LineReader& reader, const Use& use) {
  const auto document = read_json(reader.line(), document_bytes_max);
  if (!document) return InputError{reader.where(), document.error().text()};
  try {
    use(Field(*document));
  } catch (const Unreadable& unreadable) {
    return InputError{reader.where(), unreadable.error.text()};
  }
  return std::nullopt;
}

}  // namespace

Result<bool> is_trace(const std::string& path) {
  auto opened = LineReader::open(path);
  if (!opened) return opened.error();
  LineReader reader = std::move(opened).value();
  const auto first = reader.next();
  if (!first) return first.error();
  return *first && reader.line().find("\"" + std::string(mark) + "\"") != std::string::npos;
}

Result<TraceFile> TraceFile::open(const std::string& path) {
  auto opened = LineReader::open(path);
  if (!opened) return opened.error();
  LineReader reader = std::move(opened).value();
  const auto first = reader.next();
  if (!first) return first.error();
  if (!*first) return InputError{path, "is empty; expected a trace"};
  TraceHead head;
  if (auto error = with_document(reader, [&](const Field& line) { head = head_of(line); })) return *error;
  return TraceFile(std::move(reader), std::move(head));
}

Result<TraceBody> TraceFile::passes(const Workload& workload, const Timeline& timeline, std::uint64_t bytes_max) && {
  PassReader passes(workload, timeline, bytes_max);
  while (true) {
    const auto next = reader_.next();
    if (!next) return next.error();
    if (!*next) break;
    if (auto error = with_document(reader_, [&](const Field& line) { passes.line(line); })) return *error;
  }
  if (!passes.ended()) return InputError{reader_.where(), "is the end of the file and not of the trace; expected {\"end\": true} in its last line"};
  TraceBody body;
  body.notes = passes.take_notes();
  std::vector<Pass> all = passes.take();
  body.lacks = lacking(all, timeline);
  body.producer = std::make_unique<TraceProducer>(workload, timeline, head_.capabilities, std::move(all));
  return body;
}

}  // namespace gradledger::conform
