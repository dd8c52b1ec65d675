// Values of a JSON document together with where they stand in it. Nothing is taken at its word: each number has a limit, each mistake a place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"

namespace gradledger::conform {

// Leaves a reader from any depth; whoever reads a line turns it into a Result.
struct Unreadable {
  InputError error;
};

class Field {
 public:
  // The document outlives the field; `pointer` is its place.
  explicit Field(const nlohmann::json& value, std::string pointer = "") : value_(&value), pointer_(std::move(pointer)) {}

  const nlohmann::json& json() const { return *value_; }
  bool has(const std::string& key) const { return value_->is_object() && value_->contains(key); }

  // Every function below throws Unreadable where the value is not what is asked for.
  Field at(const std::string& key) const;
  Field at(std::size_t index) const;
  std::vector<Field> entries(std::uint64_t count_max) const;   // of an array
  std::vector<std::pair<std::string, Field>> members() const;  // of an object, names of at most limits::name_length_max
  std::uint32_t count(std::uint32_t least, std::uint32_t most) const;
  const nlohmann::json& object() const;
  bool flag() const;
  double number() const;  // "inf", "-inf" and "nan" are numbers too
  std::vector<double> numbers(std::uint64_t count_max) const;
  std::vector<double> exactly(std::size_t count) const;  // that many numbers
  const std::string& text(std::size_t length_max) const;

  [[noreturn]] void fail(std::string message) const;

 private:
  [[noreturn]] void unexpected(const std::string& expected) const;

  const nlohmann::json* value_;
  std::string pointer_;
};

}  // namespace gradledger::conform
