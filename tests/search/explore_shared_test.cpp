// One exploration that several processes share, here threads: the same result for any number of them, in each of them, and what is known where one is gone.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "search/draw/variants.h"
#include "search/sequences/explore.h"
#include "search/sequences/walker.h"
#include "sim/frameworks/search_space.h"
#include "sim/load.h"
#include "tests/support/sanitized.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

using namespace gradledger::search;

// Threads that meet. Who dies says so; a dead process does not.
class Meeting {
 public:
  explicit Meeting(std::uint32_t size) : size_(size), on_table_(size) {}

  std::vector<Bytes> exchange(std::uint32_t number, std::vector<Bytes> to) {
    std::unique_lock lock(guard_);
    changed_.wait(lock, [&] { return left_ == 0 || !gone_.empty(); });  // the round before is over
    if (!gone_.empty()) throw ProcessesLost(gone_, "gone");
    on_table_[number] = std::move(to);
    if (++arrived_ == size_) {
      arrived_ = 0;
      left_ = size_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return left_ > 0 || !gone_.empty(); });
    if (left_ == 0) throw ProcessesLost(gone_, "gone");  // a round in which all were there is one, whoever is gone since
    std::vector<Bytes> out;
    for (std::vector<Bytes>& from : on_table_) out.push_back(std::move(from[number]));
    if (--left_ == 0) changed_.notify_all();
    return out;
  }

  void dies(std::uint32_t number) {
    const std::lock_guard lock(guard_);
    gone_.push_back(number);
    changed_.notify_all();
  }

  const std::uint32_t size_;

 private:
  std::mutex guard_;
  std::condition_variable changed_;
  std::vector<std::vector<Bytes>> on_table_;
  std::uint32_t arrived_ = 0, left_ = 0;
  std::vector<std::uint32_t> gone_;
};

struct Dies {};

class Place final : public Exchange {
 public:
  Place(Meeting& meeting, std::uint32_t number, std::uint32_t dies_at) : meeting_(meeting), number_(number), dies_at_(dies_at) {}
  std::uint32_t number() const override { return number_; }
  std::uint32_t size() const override { return meeting_.size_; }
  std::vector<Bytes> exchange(std::vector<Bytes> to) override {
    if (calls_++ == dies_at_) {
      meeting_.dies(number_);
      throw Dies{};
    }
    std::vector<Bytes> from = meeting_.exchange(number_, std::move(to));
    for (const Bytes& message : from) bytes_ += message.size();
    return from;
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  Meeting& meeting_;
  const std::uint32_t number_, dies_at_;
  std::uint32_t calls_ = 0;
  std::uint64_t bytes_ = 0;
};

struct Shared {
  std::vector<ExploreResult> results;  // by process; of one that died what it began with
  std::vector<std::uint64_t> bytes;    // that each was sent
};

// dying: the process that dies at its exchange of this number.
Shared shared(const ExploreOptions& options, std::uint32_t size, std::uint32_t dying = never, std::uint32_t at = never) {
  Meeting meeting(size);
  Shared out;
  out.results.resize(size);
  out.bytes.resize(size);
  std::vector<std::jthread> threads;
  for (std::uint32_t number = 0; number < size; ++number)
    threads.emplace_back([&, number] {
      Place place(meeting, number, number == dying ? at : never);
      ExploreOptions own = options;
      own.exchange = &place;
      try {
        out.results[number] = explore(own);
      } catch (const Dies&) {}
      out.bytes[number] = place.bytes();
    });
  threads.clear();
  return out;
}

ExploreOptions world_of(const char* name, std::uint32_t length, const char* as_of = "head") {
  ExploreOptions options;
  options.world.world_size = 2;
  for (const char* parameter : {"w0", "w1"}) options.world.parameters.push_back({parameter, 4, std::nullopt});
  options.world.engine.as_of.base = as_of;
  (*variant_named(name, ""))->apply(options.world);
  tuning_of(options.world).clip(options.world, 0.0);
  for (const std::string& text : search_space_of(options.world).alphabet(options.world))
    options.alphabet.push_back(*letter_from(text, 2, "", search_space_of(options.world).letters(options.world)));
  options.length = length;
  options.merge_states = search_space_of(options.world).calls(options.world)->manages_windows();
  return options;
}

void expect_same(const ExploreResult& one, const ExploreResult& other, const std::string& what) {
  const auto counts = [](const ExploreResult& r) {
    return std::vector<std::uint64_t>{r.states, r.transitions, r.refused, r.undocumented, r.merged, r.not_run, r.mirrored, r.wrong, r.depth, r.complete, r.symmetric, r.elements};
  };
  EXPECT_EQ(counts(one), counts(other)) << what;
  const auto found = [](const ExploreResult& r) {
    std::vector<std::string> out;
    for (const Found& f : r.found) out.push_back(f.finding + " " + f.shape);
    return out;
  };
  EXPECT_EQ(found(one), found(other)) << what;
}

TEST(explore_shared, comes_to_the_same_for_any_number_of_processes_and_in_each) {
  for (const auto& [name, as_of] : {std::pair("zero2-offload", "0.18.9"), std::pair("zero3", "head"), std::pair("ddp", "head")}) {
    const ExploreOptions options = world_of(name, std::string_view(name) == "ddp" ? 3 : sanitized ? 4 : 5, as_of);
    const ExploreResult alone = explore(options);
    EXPECT_GT(alone.states, 10u) << name;
    for (const std::uint32_t size : {1u, 2u, 3u, 4u})
      for (const ExploreResult& result : shared(options, size).results) expect_same(alone, result, std::string(name) + " with " + std::to_string(size));
  }
}

TEST(explore_shared, finds_the_same_with_threads_in_each_process) {
  ExploreOptions options = world_of("zero2-offload", sanitized ? 3 : 5, "0.18.9");
  const ExploreResult alone = explore(options);
  EXPECT_FALSE(alone.found.empty());
  options.jobs = 2;
  for (const ExploreResult& result : shared(options, 2).results) expect_same(alone, result, "two by two");
}

TEST(explore_shared, gives_each_process_a_part_of_the_states) {
  ExploreOptions options = world_of("zero2", sanitized ? 7 : 10);
  options.as_documented = true;
  const Shared by_four = shared(options, 4);
  const std::uint64_t all = shared(options, 1).bytes[0];
  for (const std::uint64_t bytes : by_four.bytes) {
    EXPECT_GT(bytes, all / 16) << "of " << all;
    EXPECT_LT(bytes, all / 2) << "of " << all;
  }
}

// Two exchanges a level in so small a world: states, and what was counted.
TEST(explore_shared, keeps_the_levels_before_the_one_in_which_a_process_dies) {
  ExploreOptions options = world_of("zero2-offload", 5, "0.18.9");
  options.length = 3;
  const ExploreResult before = explore(options);
  options.length = 5;
  for (const std::uint32_t at : {6u, 7u}) {
    const Shared left = shared(options, 3, 1, at);
    for (const std::uint32_t number : {0u, 2u}) {
      const ExploreResult& result = left.results[number];
      EXPECT_EQ(result.lost, std::vector<std::uint32_t>{1}) << at;
      EXPECT_EQ(result.why_lost, "gone");
      EXPECT_FALSE(result.complete);
      EXPECT_EQ(result.depth, 3u);
      EXPECT_EQ(result.states, before.states);
      EXPECT_EQ(result.transitions, before.transitions);
      EXPECT_EQ(result.found.size(), before.found.size());
    }
  }
}

TEST(explore_shared, stops_in_all_processes_where_one_is_stopped) {
  const ExploreOptions options = world_of("zero1", 6);
  Meeting meeting(2);
  std::vector<ExploreResult> results(2);
  std::vector<std::jthread> threads;
  for (std::uint32_t number = 0; number < 2; ++number)
    threads.emplace_back([&, number] {
      Place place(meeting, number, never);
      ExploreOptions own = options;
      own.exchange = &place;
      int asked = 0;
      own.stop = [&, number] { return number == 1 && ++asked > 2; };
      results[number] = explore(own);
    });
  threads.clear();
  EXPECT_FALSE(results[0].complete);
  expect_same(results[0], results[1], "stopped");
}

// What a walker says of a word is what a run of its whole script says, wherever the words before it have left the walker.
TEST(walker, sees_in_a_word_what_a_run_from_its_start_sees) {
  std::size_t right = 0, wrong = 0;
  for (const auto& [name, as_of] : {std::pair("zero0", "head"), std::pair("zero1", "0.18.9"), std::pair("zero2", "0.18.9"), std::pair("zero2-offload", "0.18.9"),
                                    std::pair("zero3", "0.18.9"), std::pair("bf16-optimizer", "before #7985"), std::pair("fsdp2", "head"), std::pair("megatron", "head")}) {
    const ExploreOptions options = world_of(name, 4, as_of);
    const auto calls = search_space_of(options.world).calls(options.world);
    Walker walker(options, false);
    std::vector<Word> level{{}};
    for (std::uint32_t length = 1; length <= (sanitized ? 2u : 3u); ++length) {
      std::vector<Word> next;
      for (const Word& parent : level)
        for (std::uint8_t letter = 0; letter < options.alphabet.size(); ++letter) {
          const Tried tried = walker.attempt(parent, letter);
          if (tried.as == Tried::As::refused) continue;
          Word word = parent;
          word.push_back(letter);
          if (tried.as == Tried::As::state) next.push_back(word);
          if (open_blocks(options.alphabet, word) > 0) continue;
          Scenario scenario = options.world;
          scenario.script = *script_of(options.alphabet, word, *calls);
          const auto timeline = make_timeline(scenario);
          LookOptions look;
          look.window_period = window_period;
          look.check_streams = false;
          const Look whole = look_at(scenario, *timeline, look);
          EXPECT_EQ(tried.as == Tried::As::wrong, whole.suspicious) << name << " " << ::testing::PrintToString(word);
          ++(whole.suspicious ? wrong : right);
        }
      level = std::move(next);
    }
  }
  EXPECT_GT(right, sanitized ? 50u : 400u);
  EXPECT_GT(wrong, 10u);
}

}  // namespace
}  // namespace gradledger::testing
