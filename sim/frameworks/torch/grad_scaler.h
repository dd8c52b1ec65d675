// torch.amp.GradScaler: the loss scale, and what unscale_ and update() do to it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "sim/base/result.h"

namespace gradledger::torch {

// Where the loop uses one: every loss is scaled, every step() is the scaler's step and update.
struct GradScalerConfig {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  std::uint32_t growth_interval = 2000;

  bool operator==(const GradScalerConfig&) const = default;
};

// Of an object that its schema admits. Errors: a factor is no power of two, by its pointer.
Result<GradScalerConfig> grad_scaler_from_json(const nlohmann::json& object, const std::string& where);
nlohmann::ordered_json grad_scaler_to_json(const GradScalerConfig& config);

class GradScaler {
 public:
  explicit GradScaler(const std::optional<GradScalerConfig>& config) : config_(config.value_or(GradScalerConfig{})), enabled_(config), scale_(config_.init_scale) {}

  bool enabled() const { return enabled_; }
  double scale() const { return enabled_ ? scale_ : 1.0; }
  // Of a loss. The first one gives the scaler its tensor.
  double scale_loss() {
    initialised_ = true;
    return scale();
  }
  bool initialised() const { return initialised_; }
  // What gradients are multiplied by: the reciprocal, in fp32.
  double unscale_factor() const { return static_cast<double>(static_cast<float>(1.0 / scale_)); }

  // Of a state_dict: the scale and the steps since it moved, and not whether gradients are unscaled.
  void load(const GradScaler& saved) {
    scale_ = saved.scale_;
    good_steps_ = saved.good_steps_;
  }

  bool unscaled() const { return unscaled_; }
  // recorded: a gradient was looked at for inf.
  void set_unscaled(bool recorded) {
    unscaled_ = true;
    recorded_ = recorded;
  }
  bool inf_checks_recorded() const { return recorded_; }

  // The end of a step.
  void update(bool found_inf) {
    unscaled_ = false;
    if (found_inf) {
      scale_ *= config_.backoff_factor;
      good_steps_ = 0;
    } else if (++good_steps_ == config_.growth_interval) {
      scale_ *= config_.growth_factor;
      good_steps_ = 0;
    }
  }

 private:
  GradScalerConfig config_;
  bool enabled_;
  double scale_;
  std::uint32_t good_steps_ = 0;
  bool unscaled_ = false, recorded_ = false, initialised_ = false;
};

}  // namespace gradledger::torch
