// A value of a framework's own (its configuration, the arguments of its events): scenarios are copied, compared and written with it, and none
// but the framework looks inside.
#pragma once

#include <memory>
#include <string>
#include <typeinfo>
#include <utility>

#include "sim/base/contract.h"

namespace gradledger {

class FrameworkValue {
 public:
  FrameworkValue() = default;
  // T: a value that is copied and compared, and writes itself: std::string json_text() const, an object under the framework's own keys.
  template <class T>
  explicit FrameworkValue(T value) : holds_(std::make_unique<Holder<T>>(std::move(value))) {}

  FrameworkValue(const FrameworkValue& other) : holds_(other.holds_ ? other.holds_->clone() : nullptr) {}
  FrameworkValue(FrameworkValue&&) noexcept = default;
  FrameworkValue& operator=(const FrameworkValue& other) {
    if (this != &other) holds_ = other.holds_ ? other.holds_->clone() : nullptr;
    return *this;
  }
  FrameworkValue& operator=(FrameworkValue&&) noexcept = default;
  ~FrameworkValue() = default;

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

  friend bool operator==(const FrameworkValue& a, const FrameworkValue& b) {
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
    expects(typeid(*holds_) == typeid(Holder<T>), "a framework reads its own values");
    return static_cast<Holder<T>&>(*holds_);
  }

  std::unique_ptr<Base> holds_;
};

}  // namespace gradledger
