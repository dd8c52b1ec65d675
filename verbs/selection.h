// Which scenarios of a corpus a gate is held over.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/result.h"

namespace gradledger::verbs {

// Words, with and, or, not and parentheses: "zero2 and not (offload or fp16)". A word holds where it is a part of a text, in capitals or not.
class Expression {
 public:
  // Errors: what stands where something else is expected.
  static Result<Expression> parse(std::string_view text);

  // Of any of these texts.
  bool holds(const std::vector<std::string>& texts) const { return holds_(texts); }

 private:
  using Holds = std::function<bool(const std::vector<std::string>&)>;
  friend class ExpressionParser;
  explicit Expression(Holds holds) : holds_(std::move(holds)) {}
  Holds holds_;
};

struct Shard {
  std::uint32_t number = 0, of = 1;
};

struct Selection {
  std::optional<Expression> only;                          // of the file's path and the scenario's name
  std::optional<Shard> shard;                              // by what the files hold: all shards together have every file once
  std::function<bool(const std::filesystem::path&)> also;  // of what is left; empty: all
  bool everything() const { return !only && !shard && !also; }
  bool everything_between_shards() const { return !only && !also; }
};

struct Selected {
  std::vector<std::filesystem::path> files;     // in the order in which they came
  std::set<std::filesystem::path> named_twice;  // of the files: a name that one before has, selected or not
  std::set<std::string> names;                  // of all shards together, where there are some
};
Selected select(const std::vector<std::filesystem::path>& files, const Selection& selection);

}  // namespace gradledger::verbs
