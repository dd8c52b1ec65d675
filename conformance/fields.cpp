#include "conformance/fields.h"

#include <limits>
#include <optional>
#include <utility>

#include "sim/base/limits.h"
#include "sim/scenario/json_reader.h"

namespace gradledger::conform {
namespace {

using nlohmann::json;

std::optional<double> number_of(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

std::string shown(const json& value) {
  if (value.is_structured()) return std::string(value.is_array() ? "an array" : "an object") + " of " + std::to_string(value.size());
  const std::string text = value.dump(-1, ' ', true);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

}  // namespace

void Field::fail(std::string message) const { throw Unreadable{{pointer_, std::move(message)}}; }

void Field::unexpected(const std::string& expected) const { fail("is " + shown(*value_) + "; expected " + expected); }

Field Field::at(const std::string& key) const {
  if (!value_->is_object()) unexpected("an object");
  const auto it = value_->find(key);
  if (it == value_->end()) fail("lacks \"" + key + "\"");
  return Field(*it, pointer_ + "/" + pointer_token(key));
}

Field Field::at(std::size_t index) const {
  if (!value_->is_array() || value_->size() <= index) unexpected("an array of more than " + std::to_string(index));
  return Field((*value_)[index], pointer_ + "/" + std::to_string(index));
}

std::vector<Field> Field::entries(std::uint64_t count_max) const {
  if (!value_->is_array() || value_->size() > count_max) unexpected("an array of at most " + std::to_string(count_max));
  std::vector<Field> out;
  out.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) out.push_back(at(i));
  return out;
}

std::vector<std::pair<std::string, Field>> Field::members() const {
  if (!value_->is_object()) unexpected("an object");
  std::vector<std::pair<std::string, Field>> out;
  for (const auto& [key, value] : value_->items()) {
    if (key.size() > limits::name_length_max) fail("has a name of more than " + std::to_string(limits::name_length_max) + " characters");
    out.emplace_back(key, Field(value, pointer_ + "/" + pointer_token(key)));
  }
  return out;
}

std::uint32_t Field::count(std::uint32_t least, std::uint32_t most) const {
  const bool fits = value_->is_number_unsigned() && value_->get<std::uint64_t>() >= least && value_->get<std::uint64_t>() <= most;
  if (!fits) unexpected("a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return value_->get<std::uint32_t>();
}

const json& Field::object() const {
  if (!value_->is_object()) unexpected("an object");
  return *value_;
}

bool Field::flag() const {
  if (!value_->is_boolean()) unexpected("true or false");
  return value_->get<bool>();
}

double Field::number() const {
  const std::optional<double> number = number_of(*value_);
  if (!number) unexpected("a number, \"inf\", \"-inf\" or \"nan\"");
  return *number;
}

std::vector<double> Field::numbers(std::uint64_t count_max) const {
  if (!value_->is_array() || value_->size() > count_max) unexpected("an array of at most " + std::to_string(count_max) + " numbers");
  std::vector<double> out;
  out.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) {
    const std::optional<double> number = number_of((*value_)[i]);
    out.push_back(number ? *number : at(i).number());  // which says what is wrong
  }
  return out;
}

std::vector<double> Field::exactly(std::size_t count) const {
  if (!value_->is_array() || value_->size() != count) unexpected("an array of " + std::to_string(count) + " numbers");
  return numbers(count);
}

const std::string& Field::text(std::size_t length_max) const {
  if (!value_->is_string() || value_->get_ref<const std::string&>().size() > length_max) unexpected("a text of at most " + std::to_string(length_max) + " characters");
  return value_->get_ref<const std::string&>();
}

}  // namespace gradledger::conform
