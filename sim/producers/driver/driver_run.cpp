#include "sim/producers/driver/driver_run.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/producers/driver/group_messages.h"

namespace gradledger::driver {

using nlohmann::json;

namespace {

// A rank that had to wait for its next event would be idle while the command is; so it is told of some before it comes to them.
constexpr std::size_t events_ahead_max = 64;
constexpr std::size_t events_told_at_once = 4;                 // so that the other ranks have theirs soon
constexpr std::size_t bytes_ahead_max = std::size_t{1} << 20;  // of gradients; one event may have more

std::size_t bytes_in(const json& event) {
  std::size_t out = 0;
  if (const auto gradients = event.find("gradients"); gradients != event.end())
    for (const json& gradient : *gradients) out += gradient.get_binary().size();
  return out;
}

}  // namespace

DriverRun::DriverRun(const Scenario& scenario, const Timeline& timeline, const GradientSource& source, const RunOptions& options, DriverRanks& ranks, TraceSink& sink)
    : timeline_(timeline),
      scenario_(scenario),
      source_(source),
      options_(options),
      ranks_(ranks),
      trace_(scenario.world_size, sink),
      coordinator_(scenario.world_size, scenario.numel(), trace_) {
  const DriverHello& hello = ranks.hello();
  for (std::uint32_t r = 0; r < scenario.world_size; ++r) {
    states_.push_back({RankScript(scenario, timeline, r)});
    if (!hello.applied_gradients && hello.weights) states_.back().weights.emplace(scenario, timeline.contract, source);
    if (options.check_streams && hello.streams) states_.back().streams.emplace(r);
  }
}

RunSummary DriverRun::go(std::uint64_t number, std::uint64_t seed) {
  const json message = configure_message(scenario_, source_, options_, number, seed, states_.front().streams.has_value());
  for (std::uint32_t r = 0; r < states_.size(); ++r) {
    coordinator_.running(r);
    ranks_.send(r, Channel::events, message);
  }
  while (!over()) {
    if (auto in = ranks_.poll()) take(std::move(*in));
    else if (!settle()) take(ranks_.next(owing()));
  }
  if (refusal_) throw *refusal_;
  trace_.finish();
  report_streams();
  RunSummary summary;
  summary.trace_hash = summary.value_hash = trace_.hash();
  summary.completed = std::all_of(states_.begin(), states_.end(), [](const RankState& state) { return state.complete; });
  return summary;
}

bool DriverRun::over() const {
  return std::all_of(states_.begin(), states_.end(), [](const RankState& state) { return state.stage == Stage::finished; });
}

std::vector<std::uint32_t> DriverRun::owing() const {
  std::vector<std::uint32_t> out;
  for (std::uint32_t r = 0; r < states_.size(); ++r)
    if (states_[r].stage != Stage::finished && !coordinator_.waits(r) && !waits_for_the_others_to_be_configured(r)) out.push_back(r);
  return out;
}

bool DriverRun::waits_for_the_others_to_be_configured(std::uint32_t rank) const { return states_[rank].stage == Stage::plays && configured_ < states_.size(); }

// The coordinator hears of ranks that have nothing left to do once all that they asked for before has been read.
bool DriverRun::settle() {
  if (became_idle_.empty()) {
    auto answers = coordinator_.settle();
    if (answers.empty()) return false;
    send_all(std::move(answers));
    return true;
  }
  for (const std::uint32_t rank : became_idle_) coordinator_.idle(rank);
  became_idle_.clear();
  return true;
}

void DriverRun::take(Incoming&& in) {
  if (!in.message.is_object() || !in.message.contains("type") || !in.message["type"].is_string()) fail(in.rank, "sent a message without a type");
  if (in.channel == Channel::group) take_request(in.rank, std::move(in.message));
  else take_answer(in.rank, std::move(in.message));
}

void DriverRun::take_answer(std::uint32_t rank, json&& message) {
  const std::string type = message["type"];
  const Stage stage = states_[rank].stage;
  if (type == "failure") {
    const json text = message.value("text", json("")), traceback = message.value("traceback", json(""));
    fail(rank, fmt::format("failed: {}\n{}", text.is_string() ? text.get<std::string>() : text.dump(), traceback.is_string() ? traceback.get<std::string>() : ""));
  }
  if (type == "streams" && states_[rank].streams && (stage == Stage::configures || stage == Stage::plays)) return take_streams(rank, message);
  if (type == "configured" && stage == Stage::configures) return configured(rank, message);
  if (type == "refused" && stage == Stage::configures) return refused(rank, message);
  if (type == "done" && stage == Stage::plays) return take_done(rank, std::move(message));
  if (type == "finished" && stage == Stage::finishes) {
    states_[rank].stage = Stage::finished;
    became_idle_.push_back(rank);
    return;
  }
  fail(rank, "sent \"" + type + "\" where it was not expected");
}

// ---- the start ----------------------------------------------------------------------------------------------------------------------------

void DriverRun::configured(std::uint32_t rank, const json& message) {
  const json notes = message.value("notes", json::array());
  if (!notes.is_array()) fail(rank, "sent \"configured\" whose notes are no list");
  for (const json& note : notes)
    if (note.is_string() && std::find(notes_.begin(), notes_.end(), note.get<std::string>()) == notes_.end()) notes_.push_back(note);
  ++configured_;
  states_[rank].stage = Stage::plays;
  if (refusal_) became_idle_.push_back(rank);
  begin_if_all_are_configured();
}

void DriverRun::refused(std::uint32_t rank, const json& message) {
  const auto error = error_from(message.value("error", json()), "/error");
  if (!error) fail(rank, "sent \"refused\" with an error that cannot be read: " + error.error().text());
  const json by_driver = message.value("by_driver", json(false));
  if (!refusal_ || by_driver == json(true)) refusal_.emplace(by_driver == json(true), error->type.empty() ? error->text : error->type + ": " + error->text);
  ++configured_;
  unharmed_ = false;
  states_[rank].stage = Stage::plays;
  // None comes to what others may still meet for: it, and those that wait for all to be configured, since no run follows.
  for (std::uint32_t r = 0; r < states_.size(); ++r)
    if (states_[r].stage == Stage::plays) became_idle_.push_back(r);
  begin_if_all_are_configured();
}

void DriverRun::begin_if_all_are_configured() {
  if (configured_ < states_.size()) return;
  for (std::uint32_t r = 0; r < states_.size(); ++r) {
    if (refusal_) states_[r].stage = Stage::finished;
    else tell_on(r);
  }
}

// ---- events -------------------------------------------------------------------------------------------------------------------------------

void DriverRun::tell_on(std::uint32_t rank) {
  RankState& state = states_[rank];
  const std::vector<std::uint32_t>& events = state.script.events();
  if (state.at == events.size()) return finish(rank);
  const std::size_t until = std::min(events.size(), state.told + events_told_at_once);
  while (state.told < until && state.told - state.at < events_ahead_max && (state.told == state.at || state.bytes_ahead < bytes_ahead_max)) {
    const json message = state.script.message(events[state.told++], source_);
    state.bytes_told.push_back(bytes_in(message));
    state.bytes_ahead += state.bytes_told.back();
    ranks_.send(rank, Channel::events, message);
  }
}

// What the rank was told of, and will not answer because of an error, it passes over.
void DriverRun::finish(std::uint32_t rank) {
  states_[rank].stage = Stage::finishes;
  ranks_.send(rank, Channel::events, {{"type", "finish"}, {"number", states_[rank].at}});
}

void DriverRun::take_done(std::uint32_t rank, json&& message) {
  RankState& state = states_[rank];
  auto done = done_from(std::move(message), scenario_);
  if (!done) fail(rank, "answered an event with what cannot be read: " + done.error().text());
  const std::uint32_t expected = state.script.events()[state.at];
  if (done->event != expected) fail(rank, fmt::format("answered event {} where {} was asked for", done->event, expected));
  Done shown = std::move(done).value();
  if (shown.error && shown.error->type == "Refused") throw NotRun(true, shown.error->text);
  // What the process group itself raised stands in its own record.
  const bool ours = shown.error && (shown.error->type == "CollectiveMismatch" || shown.error->type == "CollectiveDeadlock");
  if (shown.error) unharmed_ = false;
  if (shown.error && (ours || scenario_.after_error == AfterError::stop)) state.complete = false;
  if (ours) shown.error.reset();
  // A backward that raised left them in the middle of something: they answer for nothing. What an optimizer was given was given all the same.
  const bool interrupted = shown.error && timeline_.events[expected].is<events::Backward>();
  if (interrupted || !state.complete) std::erase_if(shown.buffers, [](const ShownBuffer& buffer) { return buffer.at_end; });
  if (state.weights) add_applied(state, shown);
  trace_.done(rank, std::move(shown), state.complete);
  ++state.at;
  state.bytes_ahead -= state.bytes_told.front();
  state.bytes_told.pop_front();
  trace_.hand_on(frontier());
  if (state.complete) tell_on(rank);
  else finish(rank);
}

// A step of a black box, by what it made of the weights. Where nothing changed, no gradient was applied.
void DriverRun::add_applied(RankState& state, Done& shown) const {
  if (!timeline_.events[shown.event].is<events::Step>()) return;
  auto applied = state.weights->applied_by(shown, shown.errors);
  const bool changed = applied && std::any_of(applied->data.begin(), applied->data.end(), [](std::uint8_t byte) { return byte != 0; });
  if (!changed && !timeline_.events[shown.event].updates()) return;
  const auto updated = [](const auto& fact) { return fact.first == StepFact::updated && fact.second == 0; };
  if (applied && std::none_of(shown.facts.begin(), shown.facts.end(), updated)) shown.buffers.push_back(std::move(*applied));
}

std::uint32_t DriverRun::frontier() const {
  auto out = static_cast<std::uint32_t>(timeline_.events.size());
  for (const RankState& state : states_)
    if (state.complete && state.at < state.script.events().size()) out = std::min(out, state.script.events()[state.at]);
  return out;
}

// ---- streams ------------------------------------------------------------------------------------------------------------------------------

void DriverRun::take_streams(std::uint32_t rank, const json& message) {
  RankState& state = states_[rank];
  const std::uint32_t event = state.stage == Stage::configures ? no_event : state.script.events()[state.at];
  if (const auto problem = state.streams->take(message, event)) fail(rank, "told of its streams what cannot be read: " + problem->text());
}

void DriverRun::report_streams() {
  std::uint64_t operations = 0, streams = 0;
  for (const RankState& state : states_) {
    if (!state.streams) return;
    for (const RaceRecord& race : state.streams->races()) trace_.race(race);
    operations += state.streams->operations();
    streams = std::max<std::uint64_t>(streams, state.streams->streams());
  }
  streams_note_ = fmt::format("{} operations of {} ranks on up to {} streams each were held against the order of their waits", operations, states_.size(), streams);
}

// ---- collectives ----------------------------------------------------------------------------------------------------------------------------

void DriverRun::take_request(std::uint32_t rank, json&& message) {
  const std::string type = message["type"];
  if (type == "wait") {
    const auto id = group_wait(message);
    if (!id) fail(rank, "waits for what cannot be read: " + id.error().text());
    return send_all(coordinator_.wait(rank, *id));
  }
  if (type != "collective") fail(rank, "sent \"" + type + "\" where a collective was expected");
  auto request = group_request(std::move(message), rank, scenario_.world_size, timeline_.events.size());
  if (!request) fail(rank, "asked for a collective that cannot be read: " + request.error().text());
  send_all(coordinator_.ask(rank, std::move(request).value()));
}

void DriverRun::send_all(std::vector<GroupAnswer> answers) {
  for (GroupAnswer& answer : answers) {
    if (answer.kind == GroupAnswer::Kind::refused) unharmed_ = false;
    ranks_.send(answer.rank, Channel::group, group_message(std::move(answer)));
  }
}

void DriverRun::fail(std::uint32_t rank, const std::string& what) const { throw DriverFailure(rank, fmt::format("rank {} {}", rank, what)); }

}  // namespace gradledger::driver
