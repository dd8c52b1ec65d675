// Rounds of a script that do what the round before them did, proven and then not run: what they hold and show follows by arithmetic.
//
// Proven for every rank, from what its own engine wrote: two rounds in a row are the same program, but for the numbers of backwards, stream events
// and collectives and for which of several like buffers hold what; the engine's state at their ends is the same, but for counts that decide nothing yet; memory holds the same of older
// contributions; and a contribution weighs the same at two ages in a row (steady_forms.h). An engine that does not say what it counts is always run.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sim/base/hash.h"
#include "sim/engine/repeating.h"
#include "sim/execution/alike_programs.h"
#include "sim/execution/rank.h"
#include "sim/execution/symbolic/round_recorder.h"
#include "sim/execution/symbolic/script_rounds.h"
#include "sim/execution/symbolic/symbolic_memory.h"

namespace gradledger {

class SteadyRounds {
 public:
  static constexpr std::uint32_t rounds_min = 6;

  // alike: which ranks write the same but for where, if somebody knows.
  SteadyRounds(std::vector<Rank>& ranks, const RankClasses& classes, SymbolicMemory& memory, RoundRecorder& recorder, std::vector<ScriptRounds> script, AlikePrograms* alike)
      : ranks_(ranks), classes_(classes), memory_(memory), recorder_(recorder), script_(std::move(script)), alike_(alike), of_rank_(ranks.size()) {
    recorder_.keep(false);
  }

  // No rank begins this event before all are done with those before it. never: there is nothing more to look for.
  std::uint32_t barrier() const { return at_ < script_.size() ? script_[at_].end_of(done_) : never; }

  // An engine has written what begins here.
  void wrote(std::uint32_t r, const Program& program, std::uint32_t from) {
    if (at_ >= script_.size()) return;
    OfRank& rank = of_rank_[r];
    if (!classes_.members(r).empty()) note_of_class(rank, program, from);
    if (alike_ && alike_->follows(r)) return;
    for (std::size_t i = from; i < program.ops.size(); ++i) add(rank, program, program.ops[i]);
  }

  // A rank did what the other one, which led it, did so far. Its engine was looked at by itself.
  void stand_as(std::uint32_t r, std::uint32_t other) {
    OfRank& rank = of_rank_[r];
    const std::uint64_t state = rank.state;
    const Repeating::Counts counts = rank.counts, a_round = rank.a_round;
    rank = of_rank_[other];
    rank.state = state;
    rank.counts = counts;
    rank.a_round = a_round;
  }

  // All ranks stand still. quiet: at the barrier, with nothing under way. How many rounds were passed by.
  std::uint64_t arrive(bool quiet, std::uint64_t bytes_held) {
    const ScriptRounds& script = script_[at_];
    ++done_;
    if (!quiet || done_ > tries_max || done_ >= script.rounds) return next_part();
    const bool steady = look(done_ > 1 && bytes_held == bytes_held_);
    bytes_held_ = bytes_held;
    std::uint64_t more = steady ? script.rounds - done_ : 0;
    for (std::size_t r = 0; r < ranks_.size() && more > 0; ++r) more = std::min(more, repeating(r)->rounds_alike(of_rank_[r].a_round, script.ends_with_step));
    if (more > 0) {
      pass(static_cast<std::uint32_t>(more));
      next_part();
      return more;
    }
    recorder_.keep(done_ >= 2);
    return 0;
  }

 private:
  static constexpr std::uint32_t tries_max = 8;

  // Of a rank, at the last barrier and before it.
  struct OfRank {
    std::uint64_t state = 0, program = 0, held = 0;
    Repeating::Counts counts{}, a_round{};
    PairHash written;                                // since the barrier
    std::uint32_t stream_events = 0;                 // of the program, at the barrier
    std::vector<std::uint32_t> sequences, in_round;  // collectives by group: at the barrier; in the last round
    // Buffers are named anew in each round: those that its engine's state or its memory holds at the beginning, then others as they are met. 0: not met.
    std::vector<std::uint32_t> names;
    std::uint32_t named = 0;
    bool named_alike = false;  // as those of the rank that it follows
    // Of one that leads others, since the barrier: what was shown; how far apart its members receive their shares.
    std::vector<ViewId> shown;
    PairHash paces;
    std::uint64_t paces_before = 0;
    std::uint64_t views = 0;         // of one that another leads: what was shown of which parameters, in the round before
    std::vector<BufferId> in_state;  // buffers of its engine's state, in the order in which that names them
  };

  Repeating* repeating(std::size_t r) const { return dynamic_cast<Repeating*>(ranks_[r].engine.get()); }

  std::uint64_t next_part() {
    ++at_;
    done_ = 0;
    recorder_.keep(false);
    return 0;
  }

  // Takes in what the ranks hold now. True: the last two rounds were the same, and so are all that follow.
  bool look(bool same) {
    const ScriptRounds& script = script_[at_];
    const std::uint32_t last = script.backward_of(done_ - 1), before = last - script.backwards;
    for (const bool follows : {false, true})  // those that lead first
      for (std::uint32_t r = 0; r < ranks_.size(); ++r)
        if (classes_.leads(r) && (alike_ && alike_->follows(r)) == follows) same = look(r, done_ > 1 ? before : 0, last) && same;
    for (std::uint32_t r = 0; r < ranks_.size(); ++r)
      if (!classes_.leads(r)) same = look_at_member(r) && same;
    for (OfRank& rank : of_rank_) rank.shown.clear();
    if (!same || done_ < 3) return false;
    SteadyForms forms(memory_.forms(), {before - script.backwards, script.backwards});
    for (std::uint32_t r = 0; r < ranks_.size(); ++r)
      if (classes_.leads(r) && !memory_.settled(r, forms)) return false;
    return true;
  }

  // Its program and what it holds are its leader's. The state of its engine is its own, and names the same buffers; so are its views.
  bool look_at_member(std::uint32_t r) {
    Repeating* engine = repeating(r);
    if (!engine) return false;
    OfRank& rank = of_rank_[r];
    rank.in_state.clear();
    const std::uint64_t state = state_of(*engine, rank.in_state);
    const Repeating::Counts counts = engine->counts(), a_round{counts[0] - rank.counts[0], counts[1] - rank.counts[1]};
    TraceHash shown;
    for (const ViewId view : of_rank_[classes_.leader(r)].shown)
      for (const ViewPiece& piece : ranks_[r].program.views[view].pieces) shown.add(hash_keys({static_cast<std::uint64_t>(piece.parameter), piece.parameter_offset}));
    const bool same = state == rank.state && a_round == rank.a_round && shown.value() == rank.views && rank.in_state == of_rank_[classes_.leader(r)].in_state;
    rank.views = shown.value();
    rank.state = state;
    rank.counts = counts;
    rank.a_round = a_round;
    return same;
  }

  static std::uint64_t state_of(Repeating& engine, std::vector<BufferId>& in_state) {
    StateFold fold([&](Slice s) {
      if (std::find(in_state.begin(), in_state.end(), s.buffer) == in_state.end()) in_state.push_back(s.buffer);
      return std::uint64_t{0};
    });
    engine.fold_without_counts(fold);
    return fold.value();
  }

  bool look(std::size_t r, std::uint32_t before, std::uint32_t last) {
    Repeating* engine = repeating(r);
    if (!engine) return false;
    OfRank& rank = of_rank_[r];
    const Program& program = ranks_[r].program;
    rank.names.assign(program.buffers.size(), 0);
    rank.named = 0;
    std::vector<BufferId> held;
    const auto take = [&](BufferId b) {
      if (rank.names[b] != 0) return;
      rank.names[b] = ++rank.named;
      held.push_back(b);
    };
    rank.in_state.clear();
    const std::uint64_t state = state_of(*engine, rank.in_state);
    for (const BufferId b : rank.in_state) take(b);
    for (BufferId b = 0; b < program.buffers.size(); ++b)
      if (memory_.holds_something(static_cast<std::uint32_t>(r), b)) take(b);
    const Repeating::Counts counts = engine->counts(), a_round{counts[0] - rank.counts[0], counts[1] - rank.counts[1]};
    std::vector<std::uint32_t> in_round = program.line_sequences;
    for (std::size_t g = 0; g < rank.sequences.size(); ++g) in_round[g] -= rank.sequences[g];
    const std::uint32_t leader = alike_ ? alike_->leader(static_cast<std::uint32_t>(r)) : static_cast<std::uint32_t>(r);
    const bool known = leader == r || alike_->is_compared(static_cast<std::uint32_t>(r));
    const std::uint64_t written = leader == r ? rank.written.value() : hash_keys({of_rank_[leader].program, alike_->take_differences(static_cast<std::uint32_t>(r))});
    bool same = known && rank.named_alike && state == rank.state && written == rank.program && rank.paces.value() == rank.paces_before && a_round == rank.a_round &&
                in_round == rank.in_round;
    if (same) same = memory_.held_before(static_cast<std::uint32_t>(r), held, before) == rank.held;
    rank.held = memory_.held_before(static_cast<std::uint32_t>(r), held, last);
    rank.state = state;
    rank.program = written;
    rank.paces_before = rank.paces.value();
    rank.paces = {};
    rank.written = {};
    rank.named_alike = rank.names == of_rank_[leader].names;
    rank.counts = counts;
    rank.a_round = a_round;
    rank.stream_events = program.stream_events;
    rank.sequences = program.line_sequences;
    rank.in_round = std::move(in_round);
    return same;
  }

  void pass(std::uint32_t more) {
    const ScriptRounds& script = script_[at_];
    SteadyForms forms(memory_.forms(), {script.backward_of(done_ - 3), script.backwards});
    std::vector<std::vector<std::uint32_t>> sequences;
    for (std::uint32_t r = 0; r < of_rank_.size(); ++r) sequences.push_back(of_rank_[classes_.leader(r)].in_round);
    recorder_.repeat(more, script.events, sequences, forms, memory_.forms());
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      const OfRank& rank = of_rank_[r];
      repeating(r)->add_counts({rank.a_round[0] * more, rank.a_round[1] * more});
      if (!classes_.leads(r)) continue;
      memory_.pass(r, forms, more);
      ranks_[r].next_event += more * script.events;
      for (std::size_t g = 0; g < rank.in_round.size(); ++g) ranks_[r].program.line_sequences[g] += more * rank.in_round[g];
    }
  }

  static void note_of_class(OfRank& rank, const Program& program, std::uint32_t from) {
    for (std::size_t i = from; i < program.ops.size(); ++i) {
      const Op& op = program.ops[i];
      if (op.kind == OpKind::observe) rank.shown.push_back(op.index);
      if (op.kind == OpKind::collective) rank.paces.add(static_cast<std::uint64_t>(program.collectives[op.index].pace), 0);
    }
  }

  // What is the same in each round is counted from the round's beginning. Operations that are none of a round make every one of them another.
  void add(OfRank& rank, const Program& program, const Op& op) {
    const ScriptRounds& script = script_[at_];
    const std::uint32_t event = op.event - script.begin, round = event / script.events;
    const bool of_parameter = op.kind == OpKind::deposit;  // the source
    const std::uint64_t source = of_parameter ? hash_keys({op.source.buffer, op.source.offset, op.source.numel}) : word_of(op.source, rank, program);
    std::uint64_t index = op.index;
    switch (op.kind) {
      case OpKind::deposit: index = op.index - script.backward_of(round); break;
      case OpKind::record:
      case OpKind::wait: index = op.index - rank.stream_events; break;
      case OpKind::collective: index = word_of(program.collectives[op.index], rank, program); break;
      case OpKind::interleave:
      case OpKind::part_rows: index = word_of(program.interleavings[op.index], rank, program); break;
      case OpKind::observe: index = word_of(program.views[op.index], rank, program); break;
      case OpKind::sgd:
      case OpKind::adam:
      case OpKind::read: index = hash_keys({op.event, op.index}); break;
      default: break;
    }
    const std::uint64_t kind =
        static_cast<std::uint64_t>(op.kind) | static_cast<std::uint64_t>(op.stream) << 8 | std::uint64_t{op.flag} << 16 | static_cast<std::uint64_t>(op.role) << 24;
    rank.written.add(kind | std::uint64_t{event - round * script.events} << 32, index);
    rank.written.add(word_of(op.target, rank, program), source);
    rank.written.add(std::bit_cast<std::uint64_t>(op.scalar), 0);
  }

  static std::uint64_t word_of(Slice slice, OfRank& rank, const Program& program) {
    if (slice.buffer == no_index) return 0;
    if (rank.names.size() <= slice.buffer) rank.names.resize(slice.buffer + 1, 0);
    std::uint32_t& name = rank.names[slice.buffer];
    const bool first = name == 0;
    if (first) name = ++rank.named;
    PairHash hash;
    hash.add(name, slice.offset);
    hash.add(slice.numel, 0);
    const std::uint64_t word = hash.value();
    if (!first) return word;
    const BufferDeclaration& buffer = program.buffers[slice.buffer];
    return hash_keys({word, buffer.numel, buffer.declared_bytes, static_cast<std::uint64_t>(buffer.dtype), static_cast<std::uint64_t>(buffer.space)});
  }

  static std::uint64_t word_of(const CollectiveCall& call, OfRank& rank, const Program& program) {
    const std::uint32_t before = call.line() < rank.sequences.size() ? rank.sequences[call.line()] : 0;
    return hash_keys({static_cast<std::uint64_t>(call.kind), static_cast<std::uint64_t>(call.op), static_cast<std::uint64_t>(call.purpose), call.line(), call.sequence - before,
                      call.root, std::bit_cast<std::uint64_t>(call.factor), call.compressed_numel, word_of(call.input, rank, program), word_of(call.output, rank, program)});
  }

  static std::uint64_t word_of(const Interleaving& of, OfRank& rank, const Program& program) {
    std::uint64_t word = of.rows;
    for (const Interleaving::Part& part : of.parts) word = hash_keys({word, part.chunk, word_of(part.slice, rank, program)});
    return word;
  }

  static std::uint64_t word_of(const View& view, OfRank& rank, const Program& program) {
    TraceHash word;
    word.add_bytes(std::as_bytes(std::span(view.name)));
    for (const ViewPiece& piece : view.pieces)
      for (const std::uint64_t of : {word_of(piece.slice, rank, program), static_cast<std::uint64_t>(piece.parameter), piece.parameter_offset}) word.add(of);
    return word.value();
  }

  std::vector<Rank>& ranks_;
  const RankClasses& classes_;
  SymbolicMemory& memory_;
  RoundRecorder& recorder_;
  const std::vector<ScriptRounds> script_;
  AlikePrograms* const alike_;
  std::vector<OfRank> of_rank_;
  std::size_t at_ = 0;      // part of the script that is looked at
  std::uint32_t done_ = 0;  // its rounds
  std::uint64_t bytes_held_ = 0;
};

}  // namespace gradledger
