// What engines write, event by event, into the programs of their ranks. The engine of every rank writes for itself. Where ranks may be one class, what a
// rank writes is held to what its leader wrote, operation by operation, and is not kept; a rank that wrote otherwise leaves.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "sim/execution/alike_programs.h"
#include "sim/execution/rank.h"
#include "sim/execution/rank_classes.h"
#include "sim/execution/runnable_ranks.h"
#include "sim/execution/symbolic/steady_rounds.h"
#include "sim/execution/symbolic/symbolic_memory.h"
#include "sim/execution/written_alike.h"
#include "sim/trace/producer.h"

namespace gradledger {

// Whether a process of the script starts anew: its engine then looks for what the one before it ran.
bool restores(const Timeline& timeline);
// Whether ranks that do the same may be run once.
bool may_be_classes(const Timeline& timeline, const RunOptions& options, const TraceSink& sink);

class Emission {
 public:
  using EngineOf = std::function<std::unique_ptr<Engine>(std::uint32_t rank)>;

  // What follows the programs as they grow, where it is there; they outlive it.
  struct Followers {
    AlikePrograms* alike = nullptr;
    SteadyRounds* rounds = nullptr;
    SymbolicMemory* weights = nullptr;
  };

  Emission(const Scenario& scenario, const Timeline& timeline, std::vector<Rank>& ranks, RankClasses& classes, RunnableRanks& runnable, const RunOptions& options,
           EngineOf engine_of)
      : scenario_(scenario),
        timeline_(timeline),
        ranks_(ranks),
        classes_(classes),
        runnable_(runnable),
        options_(options),
        engine_of_(std::move(engine_of)),
        twins_(ranks.size()),
        moves_(ranks.size()) {}

  // Engines of all ranks, and what each writes before the first event. joins: ranks that write the same become a class.
  static void begin(const Scenario& scenario, const Timeline& timeline, std::vector<Rank>& ranks, RankClasses& classes, const EngineOf& engine_of, bool wide, bool joins);

  void followed_by(const Followers& followers) { followers_ = followers; }
  // Operations that ran are let go.
  void let_go() { lets_go_ = true; }
  // Throws ProgramsTooLarge after the event that goes beyond.
  void limit(std::uint64_t bytes) { bytes_max_ = bytes; }

  // Preconditions: the rank leads.
  void next_event(std::uint32_t rank);
  void resume(std::uint32_t rank, std::uint32_t event, double value);

  // A rank goes on by itself, as its leader stands.
  void leave(std::uint32_t rank);
  void dissolve(std::uint32_t leader);
  // Likewise all of a class, each with an operation that its leader is about to do. How many left.
  std::size_t dissolve_before(std::uint32_t leader, std::uint32_t op);

 private:
  using Body = std::function<void(Engine& engine, ProgramWriter& writer)>;

  void emit(std::uint32_t rank, std::uint32_t event, std::uint32_t events_before, const Body& body);
  void write(std::uint32_t rank, Program& program, std::uint32_t event, const Body& body);
  void end_event(Engine& engine, ProgramWriter& writer) const;
  void restart(std::uint32_t rank, std::uint32_t event);

  // ---- classes
  struct Written;
  std::vector<std::uint32_t> hold_members_to(std::uint32_t leader, std::uint32_t event, std::uint32_t events_before, const Body& body);
  void write_as_member(std::uint32_t rank, Program& twin, const Written& of_leader, const Body& body);
  bool stands_as(std::uint32_t rank, std::uint32_t other) const;
  void take_moves(std::uint32_t leader, const WrittenAlike& written);
  void stand_apart(std::uint32_t rank, std::uint32_t leader, Program program);
  void give_its_share(std::uint32_t rank, std::uint32_t leader, const WrittenAlike::Move& move);
  void swap_lines(Program& program, std::uint32_t a, std::uint32_t b) const;
  void place(std::uint32_t leader);
  void part_where_streams_race(std::uint32_t leader);
  void take_in(std::uint32_t rank, std::uint32_t written_before, const StreamHeads& last_before);
  Program& twin(std::uint32_t leader);

  // With what its members write.
  std::uint64_t bytes_of_program(std::uint32_t r) const {
    return ranks_[r].program.bytes() + (twins_[r] ? twins_[r]->bytes() : 0) + (followers_.alike ? followers_.alike->bytes(r) : 0);
  }

  const Scenario& scenario_;
  const Timeline& timeline_;
  std::vector<Rank>& ranks_;
  RankClasses& classes_;
  RunnableRanks& runnable_;
  const RunOptions& options_;
  const EngineOf engine_of_;
  Followers followers_;
  bool lets_go_ = false;
  std::uint64_t bytes_max_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t program_bytes_ = 0;  // of all ranks, beyond what they had at the start
  std::size_t written_most_ = 0;     // operations, for an event by any rank
  // By leader of others: a program like its own, into which they write.
  std::vector<std::unique_ptr<Program>> twins_;
  std::vector<std::vector<WrittenAlike::Move>> moves_;  // by leader of others, of operations that are still to run
};

}  // namespace gradledger
