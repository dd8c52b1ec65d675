#include "search/sequences/explore.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "search/campaign/parallel.h"
#include "search/sequences/exchange.h"
#include "search/sequences/walker.h"
#include "search/sequences/words.h"
#include "sim/base/hash.h"
#include "sim/frameworks/search_space.h"
#include "sim/load.h"

namespace gradledger::search {
namespace {

template <class Value>
void put(Bytes& out, const Value& value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

void put_word(Bytes& out, WordView word) {
  const auto bytes = std::as_bytes(word);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// What another process of the same build wrote, from front to back.
class Reader {
 public:
  explicit Reader(const Bytes& bytes) : left_(bytes) {}

  bool more() const { return !left_.empty(); }
  template <class Value>
  Value value() {
    Value out;
    std::memcpy(&out, take(sizeof out).data(), sizeof out);
    return out;
  }
  WordView word(std::size_t length) {
    const auto bytes = take(length);
    return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> take(std::size_t count) {
    expects(count <= left_.size(), "a process sent less than it said");
    const auto out = left_.first(count);
    left_ = left_.subspan(count);
    return out;
  }
  std::span<const std::byte> left_;
};

// Counts of a level, of one process or of all.
using Counts = std::array<std::uint64_t, 9>;
constexpr std::array<std::uint64_t ExploreResult::*, 9> counted{&ExploreResult::states,       &ExploreResult::transitions, &ExploreResult::refused,
                                                                &ExploreResult::undocumented, &ExploreResult::merged,      &ExploreResult::not_run,
                                                                &ExploreResult::mirrored,     &ExploreResult::wrong,       &ExploreResult::elements};

// Partitions of equal size, nothing that names a rank, and no groups: renaming ranks renames elements, no more.
bool ranks_are_alike(const Scenario& s) {
  if (s.layout || !s.groups.empty()) return false;
  const bool even = std::all_of(s.parameters.begin(), s.parameters.end(), [&](const Parameter& p) { return p.numel % (2 * s.world_size) == 0 && !p.used_by && !p.expert; });
  return even && s.engine.pipeline_stages == 1 && s.engine.expert_parallel_size == 1 && s.engine.sequence_parallel_size == 1;
}

// Whether leaving out letters of the longer one gives the shorter.
bool is_part_of(const Word& shorter, const Word& longer) {
  std::size_t at = 0;
  for (const std::uint8_t letter : longer) at += at < shorter.size() && shorter[at] == letter;
  return at == shorter.size();
}

// A level at a time, so that what is found first is shortest. A state belongs to the process that its key says: there its words meet, the smallest stands for it,
// and goes on. So what a level comes to depends neither on how many processes there are nor on their order. What is known of a level all processes know.
class Explorer {
 public:
  explicit Explorer(const ExploreOptions& options)
      : options_(options),
        others_(options.exchange ? *options.exchange : alone_),
        merges_(options.merge_states && !options.driver),
        calls_(search_space_of(options.world).calls(options.world)) {
    expects(select_engine(options_.world).ok(), "a world is explored that was not admitted");
    expects(others_.size() == 1 || !options.driver, "a real framework is explored by one process");
    out_.symmetric = ranks_are_alike(options.world);
  }

  ExploreResult run() {
    try {
      Words words(0);
      if (others_.number() == 0) words.add({});
      bool left = true;
      while (left && words.length() < options_.length) {
        if (out_.states >= options_.states_max) return std::move(out_);
        if (!level(words, left)) return std::move(out_);
      }
      out_.complete = true;
    } catch (const ProcessesLost& lost) {
      out_.lost = lost.which();
      out_.why_lost = lost.what();
    }
    return std::move(out_);
  }

 private:
  // What this process knows of a level before it is over.
  struct Level {
    std::uint32_t length;
    Arrivals arrivals{length};
    ExploreResult counts;
    std::map<std::uint64_t, Word> wrong;  // by what they look like: the smallest
  };

  // From the words of one length to those that are one letter longer. False where it was stopped; left: whether anybody has words to go on with.
  bool level(Words& words, bool& left) {
    Level level{words.length() + 1};
    level.counts.states = 0;
    // In stretches, so that somebody may stop it, and messages have an end.
    constexpr std::size_t stretch = 512;
    bool all = true;
    for (std::size_t from = 0; all; from += stretch) {
      const std::size_t begin = std::min(from, words.size()), end = std::min(words.size(), from + stretch);
      std::vector<Bytes> to(others_.size(), Bytes(1));
      all = expand(words, begin, end, level, to);
      for (Bytes& message : to) message.front() = std::byte(!all ? stopped : end < words.size() ? goes_on : nothing);
      const bool anybody = take(others_.exchange(std::move(to)), level, all);
      options_.progress(so_far(level));
      if (!anybody) break;
    }
    words = settle(level);
    share(level);
    left = level.counts.states > 0;
    return all;
  }

  ExploreResult so_far(const Level& level) const {
    ExploreResult out = out_;
    for (const auto count : counted) out.*count += level.counts.*count;
    out.depth = level.length;
    return out;
  }

  // False where it was stopped: then only the first sequences were tried.
  bool expand(const Words& words, std::size_t begin, std::size_t end, Level& level, std::vector<Bytes>& to) {
    const std::size_t letters = options_.alphabet.size(), sequences = (end - begin) * letters;
    // What a thread takes at once: neighbours begin alike. A real framework takes seconds for one.
    const std::size_t chunk = options_.driver ? 1 : 64 * letters, chunks = (sequences + chunk - 1) / chunk;
    std::vector<Tried> tried(sequences);
    std::atomic<bool> cut = false;  // within a chunk
    const auto try_some = [&](std::size_t c) {
      std::unique_ptr<Walker> walker = idle_walker();
      for (std::size_t i = c * chunk; i < std::min(sequences, (c + 1) * chunk) && !cut; ++i) {
        if (i % letters == 0 && options_.stop()) cut = true;
        else tried[i] = walker->attempt(words[begin + i / letters], static_cast<std::uint8_t>(i % letters));
      }
      const std::lock_guard lock(guard_);
      walkers_.push_back(std::move(walker));
    };
    const std::size_t done = in_parallel(chunks, options_.jobs, try_some, options_.stop);
    tried.resize(std::min(sequences, done * chunk));
    for (std::size_t i = 0; i < tried.size(); ++i) {
      const WordView parent = words[begin + i / letters];
      Word word(parent.begin(), parent.end());
      word.push_back(static_cast<std::uint8_t>(i % letters));
      count(tried[i], word, level, to);
    }
    return done == chunks && !cut;
  }

  std::unique_ptr<Walker> idle_walker() {
    const std::lock_guard lock(guard_);
    if (walkers_.empty()) return std::make_unique<Walker>(options_, out_.symmetric);
    std::unique_ptr<Walker> out = std::move(walkers_.back());
    walkers_.pop_back();
    return out;
  }

  void count(const Tried& tried, const Word& word, Level& level, std::vector<Bytes>& to) const {
    ExploreResult& counts = level.counts;
    switch (tried.as) {
      case Tried::As::untried: return;
      case Tried::As::refused: ++counts.refused; return;
      case Tried::As::mirrored: ++counts.mirrored; return;
      case Tried::As::undocumented: ++counts.undocumented; return;
      case Tried::As::not_run: ++counts.not_run; return;
      case Tried::As::wrong:
        ++counts.wrong;
        level.wrong.try_emplace(tried.alike, word);
        break;
      case Tried::As::state: {
        StateKey key = tried.key;
        if (!merges_)
          for (const std::uint8_t letter : word) key.words[0] = mix(key.words[0] ^ (letter + 1u));
        Bytes& message = to[mix(key.words[0]) % others_.size()];
        put(message, key);
        put_word(message, word);
      }
    }
    ++counts.transitions;
    counts.elements += tried.elements;
  }

  // What others send: how they stand, then states of which this process is the owner. Whether any of them has more; all: whether none was stopped.
  bool take(const std::vector<Bytes>& from, Level& level, bool& all) const {
    bool more = false;
    for (const Bytes& message : from) {
      Reader reader(message);
      const auto how = reader.value<std::byte>();
      more |= how == std::byte(goes_on);
      all &= how != std::byte(stopped);
      while (reader.more()) {
        const auto key = reader.value<StateKey>();
        const WordView word = reader.word(level.length);
        if (merges_ && met_.has(key)) ++level.counts.merged;
        else level.arrivals.add(key, word);
      }
    }
    return more;
  }

  // The words that stand for the states which this process met for the first time.
  Words settle(Level& level) {
    if (merges_) level.arrivals.settle();
    Words words = level.arrivals.words();
    words.sort();
    level.counts.states = words.size();
    level.counts.merged += level.arrivals.added() - words.size();
    if (merges_) met_.add(level.arrivals.keys());
    return words;
  }

  // What each process counted, to all: from here on all know the same.
  void share(Level& level) {
    Bytes mine;
    for (const auto count : counted) put(mine, level.counts.*count);
    for (const auto& [alike, word] : level.wrong) {
      put(mine, alike);
      put_word(mine, word);
    }
    for (const auto count : counted) level.counts.*count = 0;
    for (const Bytes& message : others_.exchange(std::vector<Bytes>(others_.size(), mine))) {
      Reader reader(message);
      for (const auto count : counted) level.counts.*count += reader.value<std::uint64_t>();
      while (reader.more()) {
        const auto alike = reader.value<std::uint64_t>();
        const WordView word = reader.word(level.length);
        const auto [at, fresh] = level.wrong.try_emplace(alike, word.begin(), word.end());
        if (!fresh) at->second = std::min(at->second, Word(word.begin(), word.end()));
      }
    }
    for (const auto count : counted) out_.*count += level.counts.*count;
    if (level.counts.transitions > 0) out_.depth = level.length;
    std::set<Word> fresh;
    for (const auto& [alike, word] : level.wrong)
      if (looks_.insert(alike).second) fresh.insert(word);
    for (const Word& word : fresh) name(word);
  }

  // By the whole oracle, as a script that closes its blocks.
  void name(const Word& word) {
    Scenario scenario = options_.world;
    scenario.script = *script_of(options_.alphabet, word, *calls_);
    const auto timeline = make_timeline(scenario);
    CampaignOptions how;
    how.seed = options_.seed;
    how.driver = options_.driver;
    std::set<ref::FindingClass> classes;
    for (const ref::Finding& f : judge_case(scenario, *timeline, how).findings) classes.insert(f.finding);
    for (const ref::FindingClass c : classes) {
      const auto contains_known = [&](const Word& known) { return is_part_of(known, word); };
      std::vector<Word>& known = named_[c];
      if (std::any_of(known.begin(), known.end(), contains_known)) continue;
      known.push_back(word);
      if (auto found = found_in(scenario, c, how)) out_.found.push_back(std::move(*found));
    }
  }

  enum How : std::uint8_t { nothing, goes_on, stopped };

  const ExploreOptions& options_;
  Alone alone_;
  Exchange& others_;
  const bool merges_;
  const std::unique_ptr<Calls> calls_;
  ExploreResult out_;
  Met met_;
  std::set<std::uint64_t> looks_;
  std::map<ref::FindingClass, std::vector<Word>> named_;
  std::mutex guard_;
  std::vector<std::unique_ptr<Walker>> walkers_;
};

}  // namespace

ExploreResult explore(const ExploreOptions& options) { return Explorer(options).run(); }

}  // namespace gradledger::search
