#include "verbs/selection.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <span>

#include <nlohmann/json.hpp>

#include "sim/base/hash.h"
#include "sim/base/files.h"

namespace gradledger::verbs {
namespace fs = std::filesystem;
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

}  // namespace

// or binds least, not most.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view text) : text_(text) { advance(); }

  Result<Expression> parse() {
    Expression::Holds holds = any();
    if (error_.empty() && !word_.empty()) error_ = "\"" + word_ + "\" stands where nothing more is expected";
    if (!error_.empty()) return InputError{"-k", error_ + "; expected words with and, or, not and parentheses"};
    return Expression(std::move(holds));
  }

 private:
  using Holds = Expression::Holds;

  Holds any() {
    Holds left = all();
    while (error_.empty() && word_ == "or") {
      advance();
      left = [left, right = all()](const auto& texts) { return left(texts) || right(texts); };
    }
    return left;
  }

  Holds all() {
    Holds left = one();
    while (error_.empty() && word_ == "and") {
      advance();
      left = [left, right = one()](const auto& texts) { return left(texts) && right(texts); };
    }
    return left;
  }

  Holds one() {
    constexpr std::uint32_t depth_max = 64;
    if (++depth_ > depth_max) return fail("is deeper than 64 parentheses and nots");
    Holds out = inner();
    --depth_;
    return out;
  }

  Holds inner() {
    if (word_.empty()) return fail("ends where a word is expected");
    const std::string word = word_;
    if (word == "and" || word == "or" || word == ")") return fail("\"" + word + "\" stands where a word is expected");
    advance();
    if (word == "not") return [of = one()](const auto& texts) { return !of(texts); };
    if (word != "(")
      return [part = lower(word)](const auto& texts) {
        return std::any_of(texts.begin(), texts.end(), [&](const std::string& text) { return lower(text).find(part) != std::string::npos; });
      };
    Holds out = any();
    if (error_.empty() && word_ != ")") return fail("lacks a parenthesis that closes");
    advance();
    return out;
  }

  Holds fail(std::string why) {
    if (error_.empty()) error_ = std::move(why);
    return [](const auto&) { return false; };
  }

  void advance() {
    const auto blank = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
    const auto bracket = [](char c) { return c == '(' || c == ')'; };
    while (!text_.empty() && blank(text_.front())) text_.remove_prefix(1);
    std::size_t end = 0;
    while (end < text_.size() && !blank(text_[end]) && !bracket(text_[end])) ++end;
    if (end == 0 && !text_.empty()) end = 1;
    word_ = text_.substr(0, end);
    text_.remove_prefix(end);
  }

  std::string_view text_;
  std::string word_, error_;
  std::uint32_t depth_ = 0;
};

Result<Expression> Expression::parse(std::string_view text) { return ExpressionParser(text).parse(); }

namespace {

struct Candidate {
  fs::path path;
  std::string name;        // empty where it is no scenario
  std::uint64_t hash = 0;  // of what it holds; of its path where it cannot be read
};

Candidate look_at(const fs::path& path) {
  const auto text = read_file(path);
  const std::string& content = text ? *text : path.string();
  TraceHash hash;
  hash.add_bytes(std::as_bytes(std::span(content)));
  Candidate out{path, "", hash.value()};
  const auto json = text ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
  if (json.is_object() && json.contains("name") && json["name"].is_string()) out.name = json["name"];
  return out;
}

// Dealt in an order that neither paths nor other machines change, so that shards are of one size.
std::set<fs::path> dealt_to(const Shard& shard, const std::vector<Candidate>& all) {
  std::vector<const Candidate*> order;
  for (const Candidate& c : all) order.push_back(&c);
  std::stable_sort(order.begin(), order.end(), [](const Candidate* a, const Candidate* b) { return a->hash < b->hash; });
  std::set<fs::path> out;
  for (std::size_t i = shard.number; i < order.size(); i += shard.of) out.insert(order[i]->path);
  return out;
}

}  // namespace

Selected select(const std::vector<fs::path>& files, const Selection& selection) {
  if (selection.everything()) return {files, {}, {}};
  std::vector<Candidate> all;
  for (const fs::path& file : files) all.push_back(look_at(file));
  Selected out;
  std::set<std::string> names;
  for (const Candidate& c : all)
    if (!c.name.empty() && !names.insert(c.name).second) out.named_twice.insert(c.path);
  if (selection.shard) out.names = names;
  if (selection.only) std::erase_if(all, [&](const Candidate& c) { return !selection.only->holds({c.path.string(), c.name}); });
  if (selection.also) std::erase_if(all, [&](const Candidate& c) { return !selection.also(c.path); });
  const auto dealt = selection.shard ? dealt_to(*selection.shard, all) : std::set<fs::path>();
  for (const Candidate& c : all)
    if (!selection.shard || dealt.contains(c.path)) out.files.push_back(c.path);
  return out;
}

}  // namespace gradledger::verbs
