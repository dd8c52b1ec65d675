#include "tests/fuzz/mutation.h"

namespace gradledger::fuzz {
namespace {

using nlohmann::json;

// Every value in the document but itself.
void collect(json& value, std::vector<json*>& out) {
  if (!value.is_structured()) return;
  for (json& inner : value) {
    out.push_back(&inner);
    collect(inner, out);
  }
}

json some_value(SplitMix64& random) {
  static const std::vector<json> values{nullptr,
                                        true,
                                        false,
                                        0,
                                        1,
                                        2,
                                        3,
                                        4,
                                        16,
                                        127,
                                        128,
                                        129,
                                        65536,
                                        65537,
                                        4294967295u,
                                        9007199254740992,
                                        18446744073709551615u,
                                        -1,
                                        0.5,
                                        -0.0,
                                        1e300,
                                        "",
                                        "auto",
                                        "head",
                                        "0.18.9",
                                        "before #7981",
                                        "3/8",
                                        "micro_batch == last",
                                        "inf",
                                        "bf16",
                                        "fp16",
                                        "cpu",
                                        json::array(),
                                        json::object(),
                                        {{"backward", {{"of", 0}}}},
                                        {{"forward", json::object()}},
                                        {{"step", json::object()}}};
  return values[random.below(static_cast<std::uint32_t>(values.size()))];
}

}  // namespace

json mutated(json document, SplitMix64& random) {
  std::vector<json*> places;
  collect(document, places);
  if (places.empty()) return some_value(random);
  const auto pick = [&]() -> json& { return *places[random.below(static_cast<std::uint32_t>(places.size()))]; };
  json& place = pick();
  switch (random.below(6)) {
    case 0: place = some_value(random); break;
    case 1: place = json(pick()); break;
    case 2:
      if (place.is_number_integer()) place = place.get<std::int64_t>() + (random.below(2) == 0 ? 1 : -1);
      else if (place.is_number()) place = place.get<double>() * 2;
      else if (place.is_boolean()) place = !place.get<bool>();
      break;
    case 3:
      if (place.is_structured() && !place.empty()) place.erase(std::next(place.begin(), random.below(static_cast<std::uint32_t>(place.size()))));
      break;
    case 4:
      if (place.is_array() && !place.empty()) place.push_back(json(place[random.below(static_cast<std::uint32_t>(place.size()))]));
      else if (place.is_object()) place["ranks"] = {random.below(3)};
      break;
    default:
      if (place.is_object()) place[random.below(2) == 0 ? "uses" : "of"] = some_value(random);
      else if (place.is_array()) place.push_back(some_value(random));
  }
  return document;
}

std::string mutated(std::string text, SplitMix64& random) {
  const std::size_t at = random.below(static_cast<std::uint32_t>(text.size()));
  switch (random.below(4)) {
    case 0: text[at] = static_cast<char>(text[at] ^ (1 << random.below(8))); break;
    case 1: text.erase(at, 1 + random.below(8)); break;
    case 2: text.insert(at, text.substr(at / 2, 1 + random.below(32))); break;
    default: text.resize(at);
  }
  return text;
}

}  // namespace gradledger::fuzz
