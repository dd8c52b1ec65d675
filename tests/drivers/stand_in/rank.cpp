#include "tests/drivers/stand_in/rank.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace gradledger::stand_in {
namespace {

using Values = std::vector<float>;

Values values_of(const json& bytes) {
  const auto& data = bytes.get_binary();
  Values out(data.size() / sizeof(float));
  std::memcpy(out.data(), data.data(), data.size());
  return out;
}

json bytes_of(const Values& values) {
  std::vector<std::uint8_t> out(values.size() * sizeof(float));
  std::memcpy(out.data(), values.data(), out.size());
  return json::binary(std::move(out));
}

class Rank {
 public:
  Rank(std::string name, std::uint32_t rank, std::uint32_t world_size, const json& events_hello, const json& group_hello)
      : name_(std::move(name)), rank_(rank), world_size_(world_size), events_(events_hello), group_(group_hello) {}

  int play() {
    while (true) {
      const json message = events_.receive();
      const std::string type = message["type"];
      if (type == "configure") configure(message);
      else if (type == "event") play(message);
      else if (type == "finish") events_.send({{"type", "finished"}});
      else return 0;
    }
  }

 private:
  // What was sent before the command knew of an error is passed over.
  void play(const json& event) {
    if (stopped_) return;
    const json out = answer(event);
    if (const auto error = out.find("error"); error != out.end()) stopped_ = stops_at_error_ || error->at("type") != "RuntimeError";
    events_.send(out);
  }

  bool is(const char* name) const { return name_ == name; }
  bool odd_one() const { return rank_ + 1 == world_size_; }  // the rank that does what is wrong

  void configure(const json& message) {
    if (is("refuses") || (is("refuses-on-a-rank") && odd_one())) return refuse({{"type", "ValueError"}, {"text", "no such option"}});
    if (is("refuses-on-a-rank") && rank_ == 0) {
      event_ = -1;
      average({1});  // which the rank that refuses never comes to
      const json error = error_.value_or(json{{"type", "RuntimeError"}, {"text", "the average is there"}});
      error_.reset();
      return refuse(error);
    }
    if (is("is-silent-at-first") && odd_one()) pause();
    if (is("fails") || is("fails-and-ends")) {
      events_.send({{"type", "failure"}, {"text", "cannot go on"}, {"traceback", "line 1"}});
      if (is("fails-and-ends")) _exit(1);
      return;
    }
    stopped_ = false;
    stops_at_error_ = message["engine"].at("after_error") == "stop";
    weights_.clear();
    for (const json& parameter : message["parameters"]) weights_.push_back(values_of(parameter["weights"]));
    rate_ = message["engine"].value("optimizer", json::object()).value("lr", 1.0f);
    clear();
    tells_streams_ = message.value("streams", false);
    if (tells_streams_)
      events_.send(
          {{"type", "streams"}, {"number", -1}, {"texts", {"default", "side", "copy_", "bucket.py:3 fill"}}, {"streams", {1, 2}}, {"entries", {{"allocate", 0, 64, 0, 4}}}});
    events_.send({{"type", "configured"}, {"notes", {"nothing is compiled"}}});
  }

  void refuse(const json& error) { events_.send({{"type", "refused"}, {"error", error}, {"by_driver", false}}); }

  void clear() {
    sums_.clear();
    for (const Values& weights : weights_) sums_.emplace_back(weights.size());
    micro_batches_ = 0;
  }

  json answer(const json& event) {
    const std::string what = event["name"];
    event_ = event["number"];
    json out{{"type", "done"}, {"number", event_}, {"buffers", json::array()}};
    misbehave(out);
    if (what == "backward") backward(event);
    if (what == "zero_grad") clear();
    if (tells_streams_) events_.send(streams());
    if (what == "step") return step(out);
    if (!is("black-box"))
      for (std::size_t p = 0; p < sums_.size(); ++p) out["buffers"].push_back(buffer("sum[" + std::to_string(p) + "]", "local", p, sums_[p], true));
    if (what == "backward" && is("raises-behind-its-hooks")) step_in_hooks(out);
    if (is("shows-what-is-not-there")) out["buffers"][0]["pieces"][0][2] = 1000;
    return out;
  }

  void misbehave(json& out) {
    if (event_ == 0 || !odd_one()) return;
    if (is("ends")) {
      std::fprintf(stderr, "Segmentation fault in the optimizer\n");
      raise(SIGKILL);
    }
    if (is("is-silent")) pause();
    if (is("sends-noise")) events_.send_bytes({0, 0, 0, 2, 0xc1, 0xc1});
    if (is("announces-too-much")) events_.send_bytes({0xff, 0xff, 0xff, 0xff});
    if (is("nests")) {
      std::vector<std::uint8_t> deep(4 + (1u << 16), 0x91);
      deep[0] = deep[3] = 0, deep[1] = 1, deep[2] = 0;
      events_.send_bytes(deep);
    }
    if (is("answers-another-event")) out["number"] = event_ + 1;
    if (is("cannot-do-event-9") && event_ == 9) out["error"] = {{"type", "Refused"}, {"text", "the driver has no event 9"}};
    if (is("raises")) out["error"] = {{"type", "RuntimeError"}, {"text", "out of bounds"}, {"traceback", "File engine.py, line 7"}};
  }

  // The last rank's second stream waits for nobody, where its name says so.
  json streams() const {
    const bool waits = !is("streams-race") || !odd_one();
    json out{{"type", "streams"}, {"number", event_}, {"entries", json::array()}};
    if (is("streams-of-another-time")) out["number"] = event_ + 1;
    for (const int stream : {0, 1}) {
      if (waits) out["entries"].push_back({"join", stream, 1 - stream});
      out["entries"].push_back({"run", stream, 3, 4, json::array(), {{is("streams-in-no-memory") ? 5 : 0, 0, 64}}});
    }
    return out;
  }

  void backward(const json& event) {
    ++micro_batches_;
    const float factor = event["arguments"].value("loss_factor", 1.0f);
    for (const auto& [number, bytes] : event["gradients"].items()) {
      const Values gradient = values_of(bytes);
      Values& sum = sums_[std::stoul(number)];
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = (is("keeps-the-last-alone") && micro_batches_ > 1 ? 0 : sum[i]) + factor * gradient[i];
    }
  }

  void step_in_hooks(json& out) const {
    for (std::size_t p = 0; p < sums_.size(); ++p) out["buffers"].push_back(buffer("hook[" + std::to_string(p) + "]", "applied", p, sums_[p], false));
    out["error"] = {{"type", "RuntimeError"}, {"text", "at the end"}};
  }

  json step(json& out) {
    for (std::size_t p = 0; p < sums_.size(); ++p) {
      const bool private_here = is("keeps-to-itself") && odd_one();
      const Values mean = average(sums_[p]);
      if (error_) {
        out["error"] = *error_;
        error_.reset();
        return out;
      }
      const Values& applied = private_here ? sums_[p] : mean;
      if (!is("black-box")) out["buffers"].push_back(buffer("gradient[" + std::to_string(p) + "]", "applied", p, applied, false));
      for (std::size_t i = 0; i < applied.size(); ++i) weights_[p][i] -= rate_ * applied[i];
    }
    for (std::size_t p = 0; p < weights_.size(); ++p) out["buffers"].push_back(buffer("weight[" + std::to_string(p) + "]", "parameter", p, weights_[p], true));
    out["facts"] = {{"updated", 1}};
    clear();
    return out;
  }

  static json buffer(const std::string& name, const char* role, std::size_t parameter, const Values& values, bool at_end) {
    return {
        {"name", name}, {"role", role}, {"dtype", "fp32"}, {"at_end", at_end}, {"pieces", json::array({json::array({parameter, 0, values.size()})})}, {"data", bytes_of(values)}};
  }

  Values average(const Values& values) {
    if (is("never-comes") && odd_one()) return values;
    const std::size_t numel = is("disagrees") && odd_one() ? values.size() - 1 : values.size();
    std::vector<std::uint32_t> all;
    for (std::uint32_t r = 0; r < world_size_; ++r) all.push_back(r);
    const Values input(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(numel));
    group_.send({{"type", "collective"},
                 {"id", next_id_},
                 {"group", all},
                 {"tag", ""},
                 {"kind", "all_reduce"},
                 {"operator", "avg"},
                 {"dtype", "fp32"},
                 {"numel", numel},
                 {"site", "wrapper.py:12 step"},
                 {"purpose", ""},
                 {"event", event_},
                 {"asynchronous", false},
                 {"data", bytes_of(input)}});
    group_.send({{"type", "wait"}, {"id", next_id_}});
    while (true) {
      const json answer = group_.receive();
      if (answer["type"] == "go_on") continue;
      ++next_id_;
      if (answer["type"] == "result") return values_of(answer["data"]);
      error_ = {{"type", answer["error"]["type"]}, {"text", answer["error"]["text"]}};
      return values;
    }
  }

  std::string name_;
  std::uint32_t rank_, world_size_;
  Wire events_, group_;
  std::vector<Values> weights_, sums_;
  float rate_ = 1;
  bool tells_streams_ = false;
  std::uint32_t micro_batches_ = 0;
  std::int64_t event_ = -1;
  std::uint64_t next_id_ = 0;
  std::optional<json> error_;
  bool stops_at_error_ = false, stopped_ = false;
};

}  // namespace

int play_rank(const std::string& name, std::uint32_t rank, std::uint32_t world_size, const json& events_hello, const json& group_hello) {
  return Rank(name, rank, world_size, events_hello, group_hello).play();
}

}  // namespace gradledger::stand_in
