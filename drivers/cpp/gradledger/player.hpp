// The driver protocol's side of the ranks, as values: messages to calls of a wrapper, and what it shows to answers. No sockets, and no processes.
// docs/driver-protocol.md has the messages.
#pragma once

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <typeinfo>

#include <nlohmann/json.hpp>

#include "gradledger/wrapper.h"

namespace gradledger::GRADLEDGER_API {
namespace detail {

using nlohmann::json;

inline constexpr std::array<const char*, 4> dtype_names{"fp32", "bf16", "fp16", "fp64"};
inline constexpr std::array<const char*, 10> role_names{"local",     "replicated",       "reduced",      "master",        "applied",
                                                        "parameter", "master parameter", "first moment", "second moment", "scratch"};
inline constexpr std::array<const char*, 5> fact_names{"skipped", "updated", "loss_scale", "gradient_norm", "clipping_norm"};
inline constexpr std::array<const char*, 6> reduction_names{"", "sum", "avg", "max", "min", "product"};

template <class Value, std::size_t N>
const char* name_of(const std::array<const char*, N>& names, Value value) {
  return names.at(static_cast<std::size_t>(value));
}

inline Dtype dtype_named(const std::string& name) {
  const auto at = std::find(dtype_names.begin(), dtype_names.end(), name);
  if (at == dtype_names.end()) throw std::runtime_error("dtype " + name + " is not known here");
  return static_cast<Dtype>(at - dtype_names.begin());
}

// The other side said what cannot be: no fault of the wrapper.
class BadMessage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// `place`: in the message.
inline std::vector<float> values_of(const json& bytes, std::size_t numel, const std::string& place) {
  if (!bytes.is_binary()) throw BadMessage(place + ": is no string of bytes");
  const auto& data = bytes.get_binary();
  if (data.size() % sizeof(float) != 0 || data.size() / sizeof(float) != numel)
    throw BadMessage(place + ": has " + std::to_string(data.size()) + " bytes; expected those of " + std::to_string(numel) + " fp32");
  std::vector<float> out(numel);
  if (!out.empty()) std::memcpy(out.data(), data.data(), out.size() * sizeof(float));
  return out;
}

inline json bytes_of(std::span<const std::byte> data) {
  std::vector<std::uint8_t> out(data.size());
  if (!out.empty()) std::memcpy(out.data(), data.data(), data.size());
  return json::binary(std::move(out));
}

// To the nearest value of the format, ties to even.
inline float rounded(double value, Dtype dtype) {
  if (dtype == Dtype::fp32 || dtype == Dtype::fp64 || value == 0 || !std::isfinite(value)) return static_cast<float>(value);
  const auto [digits, least, largest] = dtype == Dtype::bf16 ? std::tuple(8, -126, 0x1.fep127) : std::tuple(11, -14, 65504.0);
  const int exponent = std::max(std::ilogb(value), least) - (digits - 1);
  const double out = std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
  return static_cast<float>(std::abs(out) > largest ? std::copysign(std::numeric_limits<double>::infinity(), out) : out);
}

inline json hello_of(const Abilities& can, const char* kind, std::int64_t process) {
  json out{{"type", "hello"}, {"protocol", 1}, {"kind", kind}, {"process", process}};
  if (std::string_view(kind) == "group") return out;
  out["driver"] = can.name;
  out["versions"] = json::object();
  out["capabilities"] = {{"events", can.events},
                         {"frameworks", {"external"}},
                         {"applied_gradients", can.shows.applied_gradients},
                         {"accumulators", can.shows.accumulators},
                         {"weights", can.shows.weights}};
  return out;
}

inline Optimizer optimizer_of(const json& engine) {
  Optimizer out;
  if (!engine.contains("optimizer")) return out;
  const json& given = engine["optimizer"];
  out.type = given.value("type", out.type);
  out.lr = given.value("lr", out.lr);
  out.eps = given.value("eps", out.eps);
  out.weight_decay = given.value("weight_decay", out.weight_decay);
  if (!given.contains("betas")) return out;
  out.beta1 = given["betas"].at(0);
  out.beta2 = given["betas"].at(1);
  return out;
}

inline Configuration configuration_of(const json& message, std::uint32_t rank, std::uint32_t world_size) {
  Configuration out;
  out.rank = rank;
  out.world_size = world_size;
  const json& parameters = message.at("parameters");
  for (const json& given : parameters) {
    const std::string place = "/parameters/" + std::to_string(out.parameters.size());
    Parameter& parameter = out.parameters.emplace_back();
    parameter.name = given.at("name");
    parameter.numel = given.at("numel");
    parameter.trainable = given.at("trainable");
    if (!given.contains("tied_to")) {
      parameter.weights = values_of(given.at("weights"), parameter.numel, place + "/weights");
      continue;
    }
    const json& tied_to = given["tied_to"];
    if (!tied_to.is_number_unsigned() || tied_to >= parameters.size() || parameters[tied_to.get<std::size_t>()].contains("tied_to"))
      throw BadMessage(place + "/tied_to: is " + tied_to.dump() + "; expected the number of a parameter that is not tied itself, of " + std::to_string(parameters.size()));
    parameter.tied_to = tied_to.get<std::uint32_t>();
  }
  const json& engine = message.at("engine");
  out.model_dtype = dtype_named(message.at("model_dtype"));
  out.config = engine.value("config", json::object()).dump();
  out.optimizer = optimizer_of(engine);
  out.linear = message.at("linear");
  out.seed = message.at("seed");
  return out;
}

// What a wrapper is not told of cannot be asked of it.
inline void refuse_details(const json& arguments) {
  const auto refuse = [](bool asked, const char* what) {
    if (asked) throw NotSupported(std::string("the script asks for a backward with \"") + what + "\", which wrappers in C++ are not told of");
  };
  refuse(!arguments.value("scale_wrt_gas", true), "scale_wrt_gas");
  refuse(arguments.value("direct", false), "direct");
  refuse(arguments.value("past_scaler", false), "past_scaler");
  refuse(arguments.value("phases", 1) != 1, "phases");
  refuse(arguments.value("summed", 1) != 1, "sum_of");
  refuse(arguments.contains("raises_after"), "raises_after");
}

inline Backward backward_of(const json& event, std::uint32_t rank, const Configuration& configuration) {
  const json& arguments = event.at("arguments");
  refuse_details(arguments);
  Backward out{rank, arguments.at("micro_batch").get<std::uint32_t>(), {}};
  const double factor = arguments.value("loss_factor", 1.0);
  for (const json& use : arguments.at("uses")) {
    if (!use.is_number_unsigned() || use >= configuration.parameters.size())
      throw BadMessage("/arguments/uses: has " + use.dump() + "; expected the number of one of " + std::to_string(configuration.parameters.size()) + " parameters");
    const auto used = use.get<std::uint32_t>(), parameter = configuration.parameters[used].tied_to.value_or(used);
    const auto given = event.at("gradients").find(std::to_string(parameter));
    const bool there = std::any_of(out.gradients.begin(), out.gradients.end(), [&](const Gradient& g) { return g.parameter == parameter; });
    if (there || given == event["gradients"].end()) continue;
    Gradient& gradient = out.gradients.emplace_back(parameter, values_of(*given, configuration.parameters[parameter].numel, "/gradients/" + std::to_string(parameter)));
    if (factor != 1)
      for (float& value : gradient.values) value = rounded(factor * double{value}, configuration.model_dtype);
  }
  return out;
}

inline json buffer_json(const Buffer& buffer) {
  json pieces = json::array();
  for (const Piece& piece : buffer.pieces) pieces.push_back({piece.parameter, piece.offset, piece.numel});
  return {{"name", buffer.name},
          {"role", name_of(role_names, buffer.role)},
          {"dtype", name_of(dtype_names, buffer.dtype)},
          {"space", buffer.space == Space::host ? "host" : "device"},
          {"at_end", buffer.role != Role::applied},  // what a step applied is of the step, not of what is left after it
          {"scale", buffer.scale},
          {"pieces", std::move(pieces)},
          {"data", bytes_of(buffer.data)}};
}

inline void add_shown(const Shown& shown, const Shows& promised, json& done) {
  const bool step = shown.after() == "step";
  bool applied = false;
  for (const Buffer& buffer : shown.buffers()) {
    if (buffer.role == Role::applied && !step) continue;
    applied |= buffer.role == Role::applied;
    done["buffers"].push_back(buffer_json(buffer));
  }
  for (const auto& [fact, value] : shown.facts())
    if (step) done["facts"][name_of(fact_names, fact)] = value;
  // Whoever shows what is applied says by it whether the step updates.
  if (step && promised.applied_gradients && !done["facts"].contains("updated")) done["facts"]["updated"] = applied ? 1 : 0;
}

inline std::string type_name(const std::exception& error) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : typeid(error).name();
}

// A run that is broken off leaves wrappers by this.
struct Ended {};

// What `make` gave, which is a function of the user's.
template <class Made>
Made there(Made made) {
  if (!made) throw std::runtime_error("`make` returned no wrapper");
  return made;
}

// What a call raised; nothing where it did not. BadMessage goes on.
template <class Call>
json raised_by(Call&& call) {
  try {
    call();
    return nullptr;
  } catch (const NotSupported& error) {
    return {{"type", "Refused"}, {"text", error.what()}};
  } catch (const CollectiveError& error) {
    return {{"type", error.type()}, {"text", error.what()}};
  } catch (const BadMessage&) {
    throw;
  } catch (const std::exception& error) {
    return {{"type", type_name(error)}, {"text", error.what()}};
  } catch (const Ended&) {
    throw;
  } catch (...) {
    return {{"type", "exception"}, {"text", "what was thrown is no std::exception"}};
  }
}

inline bool stops(const json& error, bool at_every_error) { return at_every_error || error["type"] == "CollectiveMismatch" || error["type"] == "CollectiveDeadlock"; }

// One rank and its wrapper, which is made anew by each `configure`.
class RankPlayer {
 public:
  RankPlayer(const Ranks& ranks, Communicator& communicator) : ranks_(ranks), communicator_(communicator) {}

  // The answer; nothing where an event is passed over.
  std::optional<json> answer(const json& message) {
    const std::string type = message.at("type");
    if (type == "configure") return configure(message);
    if (type == "finish") return json{{"type", "finished"}};
    if (type != "event") throw std::runtime_error("\"" + type + "\" is not understood");
    if (stopped_) return std::nullopt;
    return play(message);
  }
  std::int64_t event() const { return event_; }  // that is played; -1 before the first

 private:
  json configure(const json& message) {
    stopped_ = false;
    event_ = -1;
    wrapper_.reset();
    configuration_ = configuration_of(message, communicator_.rank(), communicator_.world_size());
    observe_ = message.at("observe");
    stops_at_errors_ = message.at("engine").value("after_error", "stop") == "stop";
    const json error = raised_by([&] { wrapper_ = there(ranks_.make(configuration_, communicator_)); });
    if (error.is_null()) return {{"type", "configured"}, {"notes", json::array()}};
    return {{"type", "refused"}, {"error", error}, {"by_driver", error["type"] == "Refused"}};
  }

  json play(const json& event) {
    event_ = event.at("number");
    const std::string name = event.at("name");
    json out{{"type", "done"}, {"number", event_}, {"buffers", json::array()}, {"facts", json::object()}};
    const json error = raised_by([&] {
      call(name, event);
      if (!observe_ && name != "step") return;
      Shown shown(name);
      wrapper_->show(shown);
      add_shown(shown, ranks_.abilities.shows, out);
    });
    if (error.is_null()) return out;
    stopped_ = stops(error, stops_at_errors_);
    out["error"] = error;
    return out;
  }

  void call(const std::string& name, const json& event) {
    if (name == "backward") return wrapper_->backward(backward_of(event, configuration_.rank, configuration_));
    if (name == "step") return wrapper_->step();
    if (name == "forward") return wrapper_->forward();
    if (name == "zero_grad") return wrapper_->zero_grad();
    if (name == "set_boundary") return wrapper_->set_boundary(event.at("arguments").at("boundary"));
    if (name == "enter_no_sync") return wrapper_->enter_no_sync();
    if (name == "exit_no_sync") return wrapper_->exit_no_sync();
    if (name == "finalize") return wrapper_->finalize();
    if (name == "save") return wrapper_->save();
    if (name == "restore") return wrapper_->restore();
    throw NotSupported("wrappers in C++ have no " + name);
  }

  const Ranks& ranks_;
  Communicator& communicator_;
  std::unique_ptr<Wrapper> wrapper_;
  Configuration configuration_;
  std::int64_t event_ = -1;
  bool observe_ = true, stops_at_errors_ = true, stopped_ = false;
};

// A collective as the protocol has it.
inline json collective_json(const Collective& collective, std::uint64_t id, std::int64_t event) {
  constexpr std::size_t site_length_max = 200;
  const bool barrier = collective.kind == "barrier";
  json out{{"type", "collective"},
           {"id", id},
           {"group", collective.group},
           {"tag", ""},
           {"kind", collective.kind},
           {"operator", name_of(reduction_names, collective.reduction)},
           {"dtype", barrier ? "bytes" : name_of(dtype_names, collective.dtype)},
           {"numel", collective.numel},
           {"site", collective.site.substr(0, site_length_max)},
           {"purpose", ""},
           {"event", event},
           {"asynchronous", false},
           {"data", bytes_of(collective.data)}};
  if (collective.kind == "reduce" || collective.kind == "broadcast") out["root"] = collective.root;
  return out;
}

// The bytes of a result. Throws what was refused.
inline std::vector<std::byte> result_of(const json& answer) {
  if (answer.at("type") == "refused") throw CollectiveError(answer.at("error").at("type"), answer["error"].at("text").get<std::string>());
  const auto& data = answer.at("data").get_binary();
  std::vector<std::byte> out(data.size());
  if (!out.empty()) std::memcpy(out.data(), data.data(), data.size());
  return out;
}

}  // namespace detail
}  // namespace gradledger::GRADLEDGER_API
