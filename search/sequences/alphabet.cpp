#include "search/sequences/alphabet.h"

#include <algorithm>
#include <charconv>

#include "sim/scenario/spelling.h"

namespace gradledger::search {
namespace {

struct Spelt {
  std::string_view name;
  ScriptKind kind;
  Letter::Kind letter = Letter::Kind::event;
  void (*detail)(ScriptItem&) = nullptr;
};

const std::vector<Spelt>& spelt() {
  using enum ScriptKind;
  static const std::vector<Spelt> all{
      {"backward", backward},
      {"backward(unscaled)", backward, Letter::Kind::event, [](ScriptItem& i) { i.scale_wrt_gas = false; }},
      {"loss.backward", backward, Letter::Kind::event, [](ScriptItem& i) { i.direct = true; }},
      {"step", step},
      {"boundary(T)", set_boundary, Letter::Kind::event, [](ScriptItem& i) { i.boundary = true; }},
      {"boundary(F)", set_boundary},
      {"engine.zero_grad", engine_zero_grad},
      {"optimizer.zero_grad", optimizer_zero_grad},
      {"raise", raise, Letter::Kind::event, [](ScriptItem& i) { i.caught = true; }},
      {"no_sync", no_sync, Letter::Kind::begin},
      {"coalesce", coalesce, Letter::Kind::begin},
      {"end", step, Letter::Kind::end},
  };
  return all;
}

EventKind event_of(ScriptKind kind) {
  switch (kind) {
    case ScriptKind::backward: return EventKind::backward;
    case ScriptKind::set_boundary: return EventKind::set_boundary;
    case ScriptKind::no_sync: return EventKind::no_sync_enter;
    case ScriptKind::coalesce: return EventKind::coalesce_enter;
    case ScriptKind::step: return EventKind::step;
    case ScriptKind::engine_zero_grad: return EventKind::engine_zero_grad;
    case ScriptKind::optimizer_zero_grad: return EventKind::optimizer_zero_grad;
    case ScriptKind::raise: return EventKind::raise;
    case ScriptKind::repeat:  // a call with the backwards that it runs
    case ScriptKind::of_framework: return EventKind::of_framework;
    case ScriptKind::forward:
    case ScriptKind::overflow:
    case ScriptKind::set_gradient:
    case ScriptKind::scale_gradients:
    case ScriptKind::clip:
    case ScriptKind::all_reduce:
    case ScriptKind::finalize:
    case ScriptKind::save:
    case ScriptKind::restore:
    case ScriptKind::unscale: break;
  }
  expects(false, "no letter of the alphabet is such an event");
  return EventKind::raise;
}

}  // namespace

Result<Letter> letter_from(std::string_view text, std::uint32_t world_size, std::string_view where, std::span<const OwnLetter> own) {
  const std::size_t at = text.find('@');
  const std::string_view name = text.substr(0, at);
  std::vector<Letter> letters;
  for (const Spelt& s : spelt()) {
    Letter& letter = letters.emplace_back(Letter{std::string(s.name), s.letter, {}});
    letter.item.kind = s.kind;
    if (s.detail) s.detail(letter.item);
  }
  for (const OwnLetter& letter : own) letters.push_back({std::string(letter.name), Letter::Kind::event, letter.item});
  std::vector<std::string> known;
  for (const Letter& s : letters) {
    known.push_back(s.text);
    if (s.text != name) continue;
    Letter out = s;
    out.text = text;
    if (at == std::string_view::npos) return out;
    std::uint32_t rank = 0;
    const auto [end, error] = std::from_chars(text.data() + at + 1, text.data() + text.size(), rank);
    if (error != std::errc{} || end != text.data() + text.size() || rank >= world_size || s.kind != Letter::Kind::event || s.item.kind == ScriptKind::repeat)
      return InputError{std::string(where), "\"" + std::string(text) + "\" names no rank; expected an event and @0 to @" + std::to_string(world_size - 1)};
    out.item.ranks = {rank};
    return out;
  }
  std::string names;
  for (const std::string& word : known) names += (names.empty() ? "" : ", ") + word;
  return InputError{std::string(where), "\"" + std::string(text) + "\" is no event; expected one of " + names + suggestion(name, known)};
}

std::uint32_t open_blocks(const std::vector<Letter>& alphabet, const Word& word) {
  std::uint32_t open = 0;
  for (const std::uint8_t letter : word) {
    if (alphabet[letter].kind == Letter::Kind::begin) ++open;
    if (alphabet[letter].kind == Letter::Kind::end) --open;
  }
  return open;
}

bool ScriptWriter::add(const Letter& letter) {
  if (letter.kind == Letter::Kind::end) {
    if (!in_block_) return false;
    in_block_ = false;
  } else {
    if (!calls_.takes(event_of(letter.item.kind), in_block_, letter.item.direct) || (in_block_ && letter.item.kind == ScriptKind::repeat)) return false;
    (in_block_ ? script_.back().items : script_).push_back(letter.item);
    if (letter.kind == Letter::Kind::begin) in_block_ = true;
  }
  kinds_.push_back(letter.kind);
  return true;
}

void ScriptWriter::take_away() {
  if (kinds_.back() == Letter::Kind::end) {
    in_block_ = true;
  } else if (kinds_.back() == Letter::Kind::begin || !in_block_) {
    script_.pop_back();
    in_block_ = false;
  } else {
    script_.back().items.pop_back();
  }
  kinds_.pop_back();
}

std::optional<std::vector<ScriptItem>> script_of(const std::vector<Letter>& alphabet, const Word& word, const Calls& calls) {
  std::vector<ScriptItem> script;
  ScriptWriter writer(calls, script);
  for (const std::uint8_t letter : word)
    if (!writer.add(alphabet[letter])) return std::nullopt;
  return script;
}

std::uint32_t backwards_max(const std::vector<Letter>& alphabet) {
  std::uint32_t most = 1;
  for (const Letter& letter : alphabet)
    most = std::max(
        most, static_cast<std::uint32_t>(std::count_if(letter.item.items.begin(), letter.item.items.end(), [](const ScriptItem& i) { return i.kind == ScriptKind::backward; })));
  return most;
}

bool canonical_in_ranks(const std::vector<Letter>& alphabet, const Word& word) {
  std::uint32_t next = 0;
  for (const std::uint8_t letter : word)
    for (const std::uint32_t rank : alphabet[letter].item.ranks) {
      if (rank > next) return false;
      next = std::max(next, rank + 1);
    }
  return true;
}

}  // namespace gradledger::search
