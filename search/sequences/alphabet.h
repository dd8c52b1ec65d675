// Scripts as words: an alphabet of events, and the sequences over it that a framework takes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/result.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::search {

// One event as it is written: "backward", "step@1", "no_sync", "end".
struct Letter {
  enum class Kind : std::uint8_t { event, begin, end };
  std::string text;
  Kind kind = Kind::event;
  ScriptItem item;  // begin: the empty block
};

// Errors name the words that there are.
// own: the framework's own events.
Result<Letter> letter_from(std::string_view text, std::uint32_t world_size, std::string_view where, std::span<const OwnLetter> own = {});

using Word = std::vector<std::uint8_t>;  // letters, by number

// Nothing where the framework, or the language, refuses it: a step inside a block, an end without a block.
std::optional<std::vector<ScriptItem>> script_of(const std::vector<Letter>& alphabet, const Word& word, const Calls& calls);

// Scripts of words that begin alike: letters are added and taken away at the end.
class ScriptWriter {
 public:
  // Into an empty script. Both outlive it.
  ScriptWriter(const Calls& calls, std::vector<ScriptItem>& script) : calls_(calls), script_(script) {}

  // False, and nothing is added, where the framework, or the language, refuses the letter there.
  bool add(const Letter& letter);
  // The last letter. Precondition: there is one.
  void take_away();
  // Whether the last item is a block that is open.
  bool in_block() const { return in_block_; }

 private:
  const Calls& calls_;
  std::vector<ScriptItem>& script_;
  std::vector<Letter::Kind> kinds_;  // of the letters
  bool in_block_ = false;            // blocks do not nest: the framework refuses it
};

// How many blocks are open at the end of a word; script_of closes them.
std::uint32_t open_blocks(const std::vector<Letter>& alphabet, const Word& word);

// How many backwards a letter has at most: one, but for calls that run several.
std::uint32_t backwards_max(const std::vector<Letter>& alphabet);

// Ranks that the letters name come in ascending order of first use. Of the words that differ by a renaming of ranks one is canonical.
bool canonical_in_ranks(const std::vector<Letter>& alphabet, const Word& word);

}  // namespace gradledger::search
