// The configuration of a framework as a value: scenarios are copied, compared and written with it, and none but the framework looks inside.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

#include <nlohmann/json_fwd.hpp>

#include "sim/base/contract.h"
#include "sim/base/result.h"
#include "sim/numeric/dtype.h"
#include "sim/scenario/catalogue.h"

namespace gradledger {

class FrameworkConfig {
 public:
  FrameworkConfig() = default;
  // T: a value that is copied and compared, and writes itself: std::string json_text() const, an object under the framework's own keys.
  template <class T>
  explicit FrameworkConfig(T value) : holds_(std::make_unique<Holder<T>>(std::move(value))) {}

  FrameworkConfig(const FrameworkConfig& other) : holds_(other.holds_ ? other.holds_->clone() : nullptr) {}
  FrameworkConfig(FrameworkConfig&&) noexcept = default;
  FrameworkConfig& operator=(const FrameworkConfig& other) {
    if (this != &other) holds_ = other.holds_ ? other.holds_->clone() : nullptr;
    return *this;
  }
  FrameworkConfig& operator=(FrameworkConfig&&) noexcept = default;
  ~FrameworkConfig() = default;

  // Precondition: it is a T, or empty, which stands for the defaults of any.
  template <class T>
  const T& as() const {
    static const T defaults{};
    return holds_ ? held<T>().value : defaults;
  }
  template <class T>
  T& as() {
    if (!holds_) holds_ = std::make_unique<Holder<T>>(T{});
    return held<T>().value;
  }

  std::string json_text() const { return holds_ ? holds_->json_text() : "{}"; }

  friend bool operator==(const FrameworkConfig& a, const FrameworkConfig& b) {
    if (a.holds_ && b.holds_) return a.holds_->equals(*b.holds_);
    return !a.holds_ && !b.holds_;
  }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual std::unique_ptr<Base> clone() const = 0;
    virtual bool equals(const Base& other) const = 0;
    virtual std::string json_text() const = 0;
  };

  template <class T>
  struct Holder final : Base {
    explicit Holder(T v) : value(std::move(v)) {}
    std::unique_ptr<Base> clone() const override { return std::make_unique<Holder>(value); }
    bool equals(const Base& other) const override { return typeid(other) == typeid(Holder) && value == static_cast<const Holder&>(other).value; }
    std::string json_text() const override { return value.json_text(); }

    T value;
  };

  template <class T>
  Holder<T>& held() const {
    expects(typeid(*holds_) == typeid(Holder<T>), "a framework reads its own configuration");
    return static_cast<Holder<T>&>(*holds_);
  }

  std::unique_ptr<Base> holds_;
};

// What the reader of scenarios asks of the framework that one names.
class ConfigReader {
 public:
  virtual ~ConfigReader() = default;

  // `where`: the pointer of the object. Errors: keys that do not fit each other.
  virtual Result<FrameworkConfig> config_from_json(const nlohmann::json& config, std::uint32_t data_parallel_ranks, const std::string& where) const = 0;

  // Whether the schema of scenarios knows the configuration; what it does not, config_from_json() checks as a whole.
  virtual bool config_in_schema() const { return true; }

  // The dtype that /model_dtype and the configuration say together; either alone is enough. Errors: they contradict each other.
  virtual Result<Dtype> model_dtype(FrameworkConfig& config, const nlohmann::json& given, std::optional<Dtype> stated) const = 0;

  // Its known defects, which a scenario may cover.
  virtual std::span<const Entry> catalogue() const { return {}; }
};

// By the id that /engine/framework gives; null where there is none such.
using ConfigReaders = const ConfigReader* (*)(std::string_view framework);

}  // namespace gradledger
