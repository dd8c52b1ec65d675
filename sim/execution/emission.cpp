#include "sim/execution/emission.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "sim/execution/checkpoint.h"
#include "sim/execution/simulation.h"
#include "sim/trace/repeated_memory.h"

namespace gradledger {
namespace {

constexpr std::size_t leaders_tried = 8;  // those that came last

// Whose contribution a gradient is decides what a deposit means (SymbolicMemory).
bool contribute_alike(const Scenario& scenario, const Contract& contract, std::uint32_t a, std::uint32_t b) {
  if (contract.share_of.empty()) return true;
  for (std::uint32_t p = 0; p < scenario.parameters.size(); ++p) {
    const std::uint32_t of_a = contract.contributor(a, p), of_b = contract.contributor(b, p);
    if ((of_a == a) != (of_b == b) || (of_a != a && of_a != of_b)) return false;
  }
  return true;
}

}  // namespace

bool restores(const Timeline& timeline) {
  return std::any_of(timeline.events.begin(), timeline.events.end(), [](const Event& e) { return e.is<events::Restore>(); });
}

// They hold forms then, which say whose contributions they are, and nobody looks at each rank's program. A planted overflow is one rank's.
bool may_be_classes(const Timeline& timeline, const RunOptions& options, const TraceSink& sink) {
  return options.weights && options.once && options.check_streams && timeline.planted.empty() && !restores(timeline) && dynamic_cast<const NeedsNoRepeatedMemory*>(&sink);
}

void Emission::begin(const Scenario& scenario, const Timeline& timeline, std::vector<Rank>& ranks, RankClasses& classes, const EngineOf& engine_of, bool wide, bool joins) {
  std::vector<std::uint32_t> leaders;
  for (std::uint32_t r = 0; r < ranks.size(); ++r) {
    Rank& rank = ranks[r];
    rank.start_over();
    rank.program.wide = wide;
    rank.engine = engine_of(r);
    ProgramWriter writer(rank.program);
    rank.engine->initialise(writer);
    const auto tried = joins ? std::min(leaders.size(), leaders_tried) : 0;
    const auto like = std::find_if(leaders.end() - static_cast<std::ptrdiff_t>(tried), leaders.end(), [&](std::uint32_t leader) {
      return WrittenAlike(ranks[leader].program, {}).same(rank.program, {r, leader, r - leader}) && contribute_alike(scenario, timeline.contract, r, leader);
    });
    if (like != leaders.end()) {
      classes.join(r, *like);
      Program of_views;
      of_views.swap_views(rank.program);
      rank.program = std::move(of_views);
      continue;
    }
    leaders.push_back(r);
    rank.operations_at_start = static_cast<std::uint32_t>(rank.program.ops.size());
    rank.rewind();
  }
  for (const std::uint32_t leader : leaders) classes.place_in_order(leader);
}

// ---- an event ------------------------------------------------------------------------------------------------------------------------

void Emission::next_event(std::uint32_t r) {
  Rank& rank = ranks_[r];
  const std::vector<Event>& events = timeline_.events;
  const std::uint32_t before = rank.next_event;
  while (rank.next_event < events.size() && !events[rank.next_event].runs_on(r)) ++rank.next_event;
  if (rank.next_event < events.size() && events[rank.next_event].is<events::Restore>()) return restart(r, rank.next_event++);
  if (rank.next_event >= events.size()) rank.emitted_all = true;
  if (rank.emitted_all && classes_.members(r).empty()) return;
  const std::uint32_t event = rank.emitted_all ? never : rank.next_event++;
  emit(r, event, before, [&](Engine& engine, ProgramWriter& writer) { engine.handle(events[writer.event()], writer); });
}

void Emission::restart(std::uint32_t r, std::uint32_t event) {
  Rank& rank = ranks_[r];
  std::unique_ptr<Engine> fresh = engine_of_(r);
  emit(r, event, rank.next_event, [&](Engine& old, ProgramWriter& writer) {
    load_checkpoint(scenario_, rank.program, old, *fresh, writer);
    rank.engine = std::move(fresh);
  });
}

void Emission::resume(std::uint32_t r, std::uint32_t event, double value) {
  emit(r, event, ranks_[r].next_event, [&](Engine& engine, ProgramWriter& writer) { engine.resume(value, writer); });
}

void Emission::end_event(Engine& engine, ProgramWriter& writer) const {
  if (options_.observe_events) {
    writer.synchronize(true);
    engine.observe(writer);
  }
  writer.end_event();
}

// event: never, where no event is left for the rank, which may not be so for others of its class.
void Emission::emit(std::uint32_t r, std::uint32_t event, std::uint32_t events_before, const Body& body) {
  Rank& rank = ranks_[r];
  const bool leads_others = !classes_.members(r).empty();
  const std::uint64_t bytes_before = bytes_of_program(r);
  if (leads_others) twin(r).catch_up(rank.program);
  if (lets_go_) {
    const std::uint32_t needed_from = followers_.alike ? followers_.alike->needed_from(r) : no_index;
    rank.forget_what_ran(needed_from);
    if (leads_others) twin(r).forget_before(rank.ran_before(needed_from));
    rank.program.ops.reserve_more(written_most_);
  }
  const auto last_before = rank.program.last;
  const auto written_before = static_cast<std::uint32_t>(rank.program.ops.size());
  if (event != never) write(r, rank.program, event, body);
  written_most_ = std::max(written_most_, rank.program.ops.size() - written_before);
  const std::vector<std::uint32_t> apart = leads_others ? hold_members_to(r, event, events_before, body) : std::vector<std::uint32_t>{};
  take_in(r, written_before, last_before);
  program_bytes_ += bytes_of_program(r) - bytes_before;
  for (const std::uint32_t other : apart) {
    take_in(other, written_before, last_before);
    program_bytes_ += bytes_of_program(other);
  }
  if (program_bytes_ > bytes_max_) throw ProgramsTooLarge(bytes_max_);
}

void Emission::write(std::uint32_t r, Program& program, std::uint32_t event, const Body& body) {
  Rank& rank = ranks_[r];
  ProgramWriter writer(program);
  writer.begin_event(event);
  try {
    body(*rank.engine, writer);
    if (!rank.engine->suspended()) end_event(*rank.engine, writer);
  } catch (const FrameworkError& error) {
    rank.errors.push_back({r, event, error.type, error.message});
    if (scenario_.after_error == AfterError::go_on) end_event(*rank.engine, writer);
    else rank.emitted_all = true;
  }
}

// What a rank that leads has written reaches whatever follows its program.
void Emission::take_in(std::uint32_t r, std::uint32_t written_before, const StreamHeads& last_before) {
  Rank& rank = ranks_[r];
  AlikePrograms* const alike = followers_.alike;
  if (alike) alike->wrote(r, !classes_.members(r).empty());
  if (followers_.rounds) followers_.rounds->wrote(r, rank.program, written_before);
  rank.see_appended(last_before);
  if (followers_.weights) followers_.weights->prepare(r, rank.program);
  part_where_streams_race(r);
}

// ---- classes -------------------------------------------------------------------------------------------------------------------------

struct Emission::Written {
  std::uint32_t leader, event, events_before;
};

Program& Emission::twin(std::uint32_t leader) {
  if (!twins_[leader]) twins_[leader] = std::make_unique<Program>(ranks_[leader].program);
  return *twins_[leader];
}

// Those that wrote otherwise, and lead from now on. What they have in common with each other makes classes of its own.
std::vector<std::uint32_t> Emission::hold_members_to(std::uint32_t leader, std::uint32_t event, std::uint32_t events_before, const Body& body) {
  Program& twin = *twins_[leader];
  const Program::Mark mark = twin.mark();
  std::vector<std::uint32_t> leaders{leader};
  std::vector<WrittenAlike> written;  // by the leaders
  written.emplace_back(ranks_[leader].program, mark);
  for (const std::uint32_t r : classes_.take_members(leader)) {
    twin.ops.reserve_more(written_most_);
    twin.swap_views(ranks_[r].program);
    swap_lines(twin, leader, r);
    write_as_member(r, twin, {leader, event, events_before}, body);
    swap_lines(twin, leader, r);
    const std::size_t last = leaders.size() > leaders_tried ? leaders.size() - leaders_tried : 0;
    std::size_t like = 0;  // the first, then those that came last
    const auto is_like = [&](std::size_t i) {
      if (!stands_as(r, leaders[i])) return false;
      swap_lines(twin, leader, leaders[i]);
      const bool same = written[i].same(twin, {r, leaders[i], classes_.places_between(leaders[i], r), &classes_.families()});
      swap_lines(twin, leader, leaders[i]);
      return same;
    };
    while (like < leaders.size() && !is_like(like)) like = std::max(like + 1, last);
    if (like < leaders.size()) {
      classes_.join(r, leaders[like]);
      twin.swap_views(ranks_[r].program);
    } else {
      stand_apart(r, leader, twin);
      leaders.push_back(r);
      written.emplace_back(ranks_[r].program, mark);
    }
    twin.back_to(mark);
  }
  for (std::size_t i = 0; i < leaders.size(); ++i) take_moves(leaders[i], written[i]);
  for (std::size_t i = 1; i < leaders.size(); ++i)  // whether its streams race is known as soon as it wrote
    if (followers_.alike && !classes_.members(leaders[i]).empty()) followers_.alike->stand_by_itself(leaders[i]);
  if (leaders.size() > 1)
    for (const std::uint32_t rank : leaders) place(rank);
  leaders.erase(leaders.begin());
  return leaders;
}

// What lies elsewhere on its members is noted until it ran.
void Emission::take_moves(std::uint32_t leader, const WrittenAlike& written) {
  Rank& rank = ranks_[leader];
  std::vector<WrittenAlike::Move>& moves = moves_[leader];
  std::erase_if(moves, [ran = rank.ran_before(no_index)](const auto& move) { return move.op < ran; });
  for (const WrittenAlike::Move& move : written.moves()) {
    moves.push_back(move);
    if (move.collective != no_index && !move.written) rank.program.collectives[move.collective].pace = move.elements;
  }
}

// As much of the script as its leader has behind it, up to the first event that only one of the two runs.
void Emission::write_as_member(std::uint32_t r, Program& twin, const Written& of_leader, const Body& body) {
  Rank& rank = ranks_[r];
  const std::vector<Event>& events = timeline_.events;
  const auto ends = static_cast<std::uint32_t>(events.size());
  rank.next_event = of_leader.events_before;
  const std::uint32_t skipped_to = of_leader.event == never ? ends : of_leader.event;
  while (rank.next_event < skipped_to && !events[rank.next_event].runs_on(r)) ++rank.next_event;
  if (rank.next_event < skipped_to) return;  // it has an event before that
  if (of_leader.event == never) {
    rank.emitted_all = true;
  } else if (of_leader.events_before > of_leader.event || events[of_leader.event].runs_on(r)) {  // the rest of an event, or one
    rank.next_event = ranks_[of_leader.leader].next_event;
    write(r, twin, of_leader.event, body);
  }
}

// But for what they wrote.
bool Emission::stands_as(std::uint32_t r, std::uint32_t o) const {
  const Rank &rank = ranks_[r], &other = ranks_[o];
  const auto same_error = [](const EngineErrorRecord& a, const EngineErrorRecord& b) { return a.event == b.event && a.type == b.type && a.message == b.message; };
  return rank.next_event == other.next_event && rank.emitted_all == other.emitted_all && rank.engine->suspended() == other.engine->suspended() &&
         std::equal(rank.errors.begin(), rank.errors.end(), other.errors.begin(), other.errors.end(), same_error);
}

// By itself, as the leader stood before what is in the program now. It has an engine, errors and a place in the script of its own.
void Emission::stand_apart(std::uint32_t r, std::uint32_t leader, Program program) {
  const std::int64_t places = classes_.places_between(leader, r);
  for (const WrittenAlike::Move& move : moves_[leader]) {
    const auto by = static_cast<std::uint64_t>(places * move.elements);
    if (move.collective != no_index) {
      CollectiveCall& call = program.collectives[move.collective];
      (move.written ? call.input : call.output).offset += by;
    } else if (move.op >= program.ops.forgotten()) {
      Op& op = program.ops[move.op];
      (move.written ? op.target : op.source).offset += by;
    }
  }
  const GroupFamilies& families = classes_.families();
  for (CollectiveCall& call : program.collectives)
    if (const auto* const own = families.alone(call.group) ? nullptr : families.seat(r, call.group)) call.group = own->group;
  swap_lines(program, leader, r);
  moves_[r] = moves_[leader];
  ranks_[r].stand_as(ranks_[leader], std::move(program));
  if (followers_.weights) {
    followers_.weights->stand_apart(r, leader);
    for (const WrittenAlike::Move& move : moves_[leader]) give_its_share(r, leader, move);
  }
  if (followers_.alike) followers_.alike->stand_as(r, leader);
  if (followers_.rounds) followers_.rounds->stand_as(r, leader);
  runnable_.insert(static_cast<std::uint16_t>(r));
}

// What it gathers in place, and nobody has gathered yet, lies where its leader put it. Nothing else of that buffer counts.
void Emission::give_its_share(std::uint32_t r, std::uint32_t leader, const WrittenAlike::Move& move) {
  if (move.collective == no_index || !move.written || move.op < ranks_[leader].program.ops.forgotten()) return;
  const std::uint32_t head = ranks_[leader].head[static_cast<std::size_t>(ranks_[leader].program.ops[move.op].stream)];
  if (head > move.op) return;  // it is done
  followers_.weights->copy_within(r, ranks_[leader].program.collectives[move.collective].input, ranks_[r].program.collectives[move.collective].input);
}

// Counts of what was called in the groups of one rank become those of the groups of another.
void Emission::swap_lines(Program& program, std::uint32_t a, std::uint32_t b) const {
  std::vector<std::uint32_t>& counts = program.line_sequences;
  classes_.families().each_apart(a, b, [&](std::uint32_t of_a, std::uint32_t of_b) {
    counts.resize(std::max(counts.size(), line_of(std::max(of_a, of_b), communicators_max)), 0);
    for (std::uint32_t c = 0; c < communicators_max; ++c) std::swap(counts[line_of(of_a, c)], counts[line_of(of_b, c)]);
  });
  while (!counts.empty() && counts.back() == 0) counts.pop_back();  // as the writer leaves them
}

// Of a class that has become smaller.
void Emission::place(std::uint32_t leader) {
  const bool alone = classes_.members(leader).empty();
  if (alone) {
    twins_[leader].reset();
    moves_[leader].clear();
  }
  if (!followers_.weights) return;
  if (alone) followers_.weights->forget_paces(leader);
  else if (moves_[leader].empty() && !followers_.weights->has_paces(leader)) classes_.place_in_order(leader);
}

void Emission::leave(std::uint32_t r) {
  const std::uint32_t leader = classes_.leader(r);
  Rank& rank = ranks_[r];
  rank.next_event = ranks_[leader].next_event;
  rank.emitted_all = ranks_[leader].emitted_all;
  Program program = ranks_[leader].program;
  program.swap_views(rank.program);
  stand_apart(r, leader, std::move(program));
  program_bytes_ += bytes_of_program(r);
  classes_.leave(r);
  place(r);
  if (classes_.members(leader).empty()) place(leader);
}

void Emission::dissolve(std::uint32_t leader) {
  // as the others: what it waited for with them it may have
  const std::span<const std::uint32_t> members = classes_.members(leader);
  for (const std::uint32_t member : std::vector(members.rbegin(), members.rend())) leave(member);
}

std::size_t Emission::dissolve_before(std::uint32_t leader, std::uint32_t op) {
  const std::span<const std::uint32_t> members = classes_.members(leader);
  const std::vector<std::uint32_t> all(members.begin(), members.end());
  dissolve(leader);
  for (const std::uint32_t member : all) ranks_[member].head[static_cast<std::size_t>(ranks_[leader].program.ops[op].stream)] = op;
  return all.size();
}

// A race is looked at on every rank by itself.
void Emission::part_where_streams_race(std::uint32_t leader) {
  if (classes_.members(leader).empty() || !followers_.alike || followers_.alike->races(leader).empty()) return;
  const std::span<const std::uint32_t> members = classes_.members(leader);
  for (const std::uint32_t member : std::vector(members.rbegin(), members.rend())) {
    leave(member);
    followers_.alike->back_by_one(member);
    followers_.alike->wrote(member);
  }
}

}  // namespace gradledger
