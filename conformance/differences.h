// What holding a recorded run against its replay finds first, and how much was held. The readers of PyTorch's wrappers and of Megatron-Core use it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "conformance/compare.h"
#include "conformance/fields.h"

namespace gradledger::conform {

struct Collective {
  std::string kind;
  std::uint64_t numel = 0;  // of the input; of Megatron's all_gather, the output
  std::string dtype;
  std::string operation;  // "SUM"; empty where nothing is reduced
  std::vector<std::uint32_t> group;

  bool operator==(const Collective&) const = default;
};

// [["all_reduce", 64, "float32", "SUM", [0, 1]]]. Throws Unreadable.
std::vector<Collective> read_calls(const Field& list, std::uint32_t world);

// A run that is not compared, and why.
Comparison left_out(const std::string& name, const std::string& version, std::string why);

// Whether a model refuses a run in the words of the framework, all of them: its message ends with "initialisation: " and the type and text of the exception.
bool refuses_as(const std::optional<InputError>& refused, const std::string& words);

class Differences {
 public:
  Differences(const std::string& name, const std::string& version, const nlohmann::json& operations) : operations_(operations) {
    out_.name = name;
    out_.version = version;
  }

  // Where what is held now stands.
  void at(std::size_t rank, std::size_t operation) {
    rank_ = rank;
    operation_ = operation;
  }

  // The first is kept.
  void differ(const std::string& how);
  bool none() const { return out_.why.empty(); }

  void count(std::uint64_t elements) { out_.elements += elements; }
  // Bit for bit, but that every NaN is one.
  void number(const char* what, std::optional<double> recorded, std::optional<double> replayed);
  void values(const std::string& what, const std::vector<double>& recorded, const std::vector<double>& replayed);
  void calls(const std::vector<Collective>& recorded, const std::vector<Collective>& replayed);

  // in_part: what was not judged where nothing differs; else empty.
  Comparison finish(const std::string& in_part);

 private:
  const nlohmann::json& operations_;
  std::size_t rank_ = 0, operation_ = 0;
  Comparison out_;
};

}  // namespace gradledger::conform
