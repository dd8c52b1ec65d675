#include "sim/producers/driver/group_messages.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

namespace gradledger::driver {
namespace {

using nlohmann::json;

constexpr std::size_t text_length_max = group_site_length_max;
constexpr std::array purposes{Purpose::gradient, Purpose::norm, Purpose::overflow, Purpose::parameter, Purpose::user, Purpose::control};

// Reads the keys of one message. The first that is wrong is kept, and what is read after it means nothing.
class Keys {
 public:
  explicit Keys(const json& message) : message_(message) {
    if (!message.is_object()) fail("", "is no map");
  }

  const std::optional<InputError>& error() const { return error_; }
  bool has(const char* key) const { return message_.is_object() && message_.contains(key); }
  void fail(const std::string& key, const std::string& what) {
    if (!error_) error_ = InputError{key.empty() ? "" : "/" + key, what};
  }

  // Null where the key is missing, or something was wrong before.
  const json* at(const char* key) {
    read_.insert(key);
    if (error_) return nullptr;
    if (!has(key)) fail(key, "is missing");
    return error_ ? nullptr : &message_[key];
  }

  std::int64_t integer(const char* key, std::int64_t least, std::int64_t most) {
    const json* value = at(key);
    if (!value) return least;
    const bool fits = value->is_number_unsigned() ? value->get<std::uint64_t>() <= static_cast<std::uint64_t>(std::max<std::int64_t>(most, 0)) : value->is_number_integer();
    const std::int64_t number = fits ? value->get<std::int64_t>() : least;
    if (!fits || number < least || number > most) fail(key, "is no whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return number;
  }
  std::uint64_t count(const char* key, std::uint64_t most) {
    return static_cast<std::uint64_t>(integer(key, 0, static_cast<std::int64_t>(std::min<std::uint64_t>(most, std::numeric_limits<std::int64_t>::max()))));
  }

  double number(const char* key) {
    const json* value = at(key);
    const bool fits = value && value->is_number() && std::isfinite(value->get<double>());
    if (value && !fits) fail(key, "is no finite number");
    return fits ? value->get<double>() : 0;
  }

  // Valid UTF-8: it ends in reports, which are JSON.
  std::string text(const char* key) {
    const json* value = at(key);
    if (!value) return "";
    if (!value->is_string() || value->get_ref<const std::string&>().size() > text_length_max) {
      fail(key, "is no text of at most " + std::to_string(text_length_max) + " bytes");
      return "";
    }
    try {
      static_cast<void>(value->dump());
    } catch (const json::type_error&) {
      fail(key, "is no text in UTF-8");
      return "";
    }
    return value->get<std::string>();
  }

  bool boolean(const char* key) {
    const json* value = at(key);
    if (value && !value->is_boolean()) fail(key, "is neither true nor false");
    return value && value->is_boolean() && value->get<bool>();
  }

  template <class Number>
  std::vector<Number> numbers(const char* key, std::size_t count_max, Number most) {
    std::vector<Number> out;
    const json* value = at(key);
    if (!value) return out;
    if (!value->is_array() || value->size() > count_max) {
      fail(key, "is no list of at most " + std::to_string(count_max) + " numbers");
      return out;
    }
    for (const json& number : *value) {
      const bool fits = number.is_number_integer() && (number.is_number_unsigned() || number.get<std::int64_t>() >= 0) && number.get<std::uint64_t>() <= most;
      if (!fits) fail(key, "has what is no whole number from 0 to " + std::to_string(most));
      out.push_back(fits ? number.get<Number>() : 0);
    }
    return out;
  }

  template <class Name>
  Name name(const char* key, int names) {
    const std::string given = text(key);
    for (int i = 0; i < names; ++i)
      if (name_of(static_cast<Name>(i)) == given) return static_cast<Name>(i);
    fail(key, "is \"" + given + "\", which the protocol does not know");
    return Name{};
  }

  void refuse_others() {
    if (!message_.is_object()) return;
    for (const auto& [key, value] : message_.items())
      if (!read_.contains(key)) fail(key, "is no key of this message");
  }

 private:
  const json& message_;
  std::set<std::string, std::less<>> read_;
  std::optional<InputError> error_;
};

void read_type(Keys& keys, std::string_view type) {
  if (keys.text("type") != type) keys.fail("type", "is not \"" + std::string(type) + "\"");
}

std::optional<Purpose> purpose_from(Keys& keys) {
  const std::string given = keys.text("purpose");
  if (given.empty()) return std::nullopt;
  for (const Purpose purpose : purposes)
    if (gradledger::name_of(purpose) == given) return purpose;
  keys.fail("purpose", "is \"" + given + "\", which the protocol does not know");
  return std::nullopt;
}

void read_what(Keys& keys, GroupRequest& out, std::uint32_t world_size) {
  out.group = keys.numbers<std::uint32_t>("group", world_size, world_size - 1);
  out.tag = keys.text("tag");
  out.kind = keys.name<GroupCall>("kind", group_calls);
  out.op = keys.name<GroupOperator>("operator", group_operators);
  if (keys.has("factor")) out.factor = keys.number("factor");
  out.dtype = keys.name<GroupDtype>("dtype", group_dtypes);
  out.numel = keys.count("numel", group_bytes_max);
  if (has_root(out.kind) || keys.has("root")) out.root = static_cast<std::uint32_t>(keys.count("root", world_size - 1));
  if (keys.has("parts")) {
    out.parts = keys.numbers<std::uint64_t>("parts", world_size, group_bytes_max);
    if (out.parts.empty()) keys.fail("parts", "are empty; expected one for each member, or no such key");
  }
  if (!is_between_two(out.kind)) return;
  out.peer = static_cast<std::uint32_t>(keys.count("peer", world_size - 1));
  out.message_tag = keys.integer("message_tag", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
}

}  // namespace

Result<GroupRequest> group_request(json&& message, std::uint32_t rank, std::uint32_t world_size, std::uint64_t events) {
  Keys keys(message);
  read_type(keys, "collective");
  GroupRequest out;
  out.id = keys.count("id", std::numeric_limits<std::int64_t>::max());
  read_what(keys, out, world_size);
  out.site = keys.text("site");
  out.purpose = purpose_from(keys);
  out.event = keys.integer("event", -1, static_cast<std::int64_t>(events) - 1);
  out.asynchronous = keys.boolean("asynchronous");
  const json* data = keys.at("data");
  if (data && !data->is_binary()) keys.fail("data", "are no bytes");
  keys.refuse_others();
  if (keys.error()) return *keys.error();
  out.data = std::move(static_cast<std::vector<std::uint8_t>&>(message["data"].get_binary()));
  if (auto fault = fault_of(out, rank, world_size)) return *fault;
  return out;
}

Result<std::uint64_t> group_wait(const json& message) {
  Keys keys(message);
  read_type(keys, "wait");
  const std::uint64_t id = keys.count("id", std::numeric_limits<std::int64_t>::max());
  keys.refuse_others();
  if (keys.error()) return *keys.error();
  return id;
}

json group_message(GroupAnswer&& answer) {
  switch (answer.kind) {
    case GroupAnswer::Kind::result: return {{"type", "result"}, {"id", answer.id}, {"data", json::binary(std::move(answer.data))}};
    case GroupAnswer::Kind::refused: return {{"type", "refused"}, {"id", answer.id}, {"error", {{"type", answer.type}, {"text", answer.text}}}};
    case GroupAnswer::Kind::go_on: return {{"type", "go_on"}, {"id", answer.id}};
  }
  return {};
}

}  // namespace gradledger::driver
