// Several passes in one: what a step needs between the last micro-batch and the new parameters. Contracts in sim/numeric/fused.h.
#pragma once

#include "gpu/elementwise.h"
#include "gpu/optimizers.h"
#include "gpu/tree_sum.h"
#include "sim/engine/clipping.h"
#include "sim/numeric/dispatch_dtype.h"
#include "sim/numeric/fused.h"

namespace gradledger::gpu {

template <class T>
struct Unscale {
  static constexpr std::size_t width = pack_width<T>;
  T* target;
  float factor;
  std::uint8_t* flag;

  bool aligned_at(std::size_t i) const { return is_pack_aligned<width>(target + i); }
  template <std::size_t w>
  GRADLEDGER_HD Pack<T, w> fetch(std::size_t i) const {
    return load<w>(static_cast<const T*>(target + i));
  }
  template <std::size_t w>
  GRADLEDGER_HD void finish(std::size_t i, const Pack<T, w>& in) const {
    Pack<T, w> out;
    GRADLEDGER_UNROLL
    for (std::size_t k = 0; k < w; ++k) out[k] = Multiplied<T>{factor}(in[k]);
    if (!all_finite(in)) *flag = 1;
    store(target + i, out);
  }
};

// The terms of accumulate_with_norm: taking one stores the sum that it is made of. A warp's accesses are consecutive.
template <class T, class S>
struct SquaresOfSums {
  struct Fetched {
    T target;
    S source;
  };
  T* target;
  const S* source;
  float factor;
  std::uint8_t* flag;

  GRADLEDGER_HD Fetched fetch(std::size_t i) const { return {target[i], source[i]}; }
  GRADLEDGER_HD double take(std::size_t i, const Fetched& fetched) const {
    const T sum = Sum<T, S>{}(fetched.target, fetched.source);
    target[i] = sum;
    if (!is_finite(sum)) *flag = 1;
    const double x = static_cast<double>(numeric::mul(numeric::widen(sum), factor));
    return x * x;
  }
};

// adam_mixed: the coefficient lies in device memory.
template <class Formula, class G, class Output>
struct MixedAdam {
  static constexpr std::size_t width = pack_width<float, G, Output>;
  float* parameter;
  const G* gradient;
  float* first;
  float* second;
  Output* output;
  float factor;
  const float* coefficient;
  Formula formula;

  bool aligned_at(std::size_t i) const {
    return is_pack_aligned<width>(parameter + i) && is_pack_aligned<width>(gradient + i) && is_pack_aligned<width>(first + i) && is_pack_aligned<width>(second + i) &&
           is_pack_aligned<width>(output + i);
  }
  template <std::size_t w>
  GRADLEDGER_HD AdamPack<G, w> fetch(std::size_t i) const {
    return {load<w>(static_cast<const float*>(parameter + i)), load<w>(gradient + i), load<w>(static_cast<const float*>(first + i)),
            load<w>(static_cast<const float*>(second + i))};
  }
  template <std::size_t w>
  GRADLEDGER_HD void finish(std::size_t i, AdamPack<G, w> x) const {
    const float clip = *coefficient;
    Pack<Output, w> rounded;
    GRADLEDGER_UNROLL
    for (std::size_t k = 0; k < w; ++k) {
      formula.update(x.p[k], numeric::mul(numeric::mul(numeric::widen(x.g[k]), factor), clip), x.m[k], x.v[k]);
      rounded[k] = numeric::narrow<Output>(x.p[k]);
    }
    store(first + i, x.m);
    store(second + i, x.v);
    store(parameter + i, x.p);
    store(output + i, rounded);
  }
};

// ---- one thread: from a squared norm to what multiplies gradients ------------------------------------------------------------

// Correctly rounded on both sides: sqrt.rn.f64.
GRADLEDGER_HD inline double root(double x) { return ::sqrt(x); }

// unscale_and_clip_factor of sim/engine/clipping.h
struct CombinedFactor {
  float scale, clip, unclipped;

  CombinedFactor(double loss_scale, double clip_norm)
      : scale(static_cast<float>(loss_scale)), clip(static_cast<float>(clip_norm)), unclipped(static_cast<float>(1.0 / loss_scale)), clips(clip_norm > 0) {}

  GRADLEDGER_HD float operator()(double squared_norm) const {
    if (!clips) return unclipped;
    const double norm = root(squared_norm);
    const float ratio = (static_cast<float>(is_finite(norm) ? norm : 1.0) / scale + static_cast<float>(clip_guard)) / clip;
    return 1.0f / ((ratio < 1.0f ? 1.0f : ratio) * scale);
  }

 private:
  bool clips;
};

// clip_coefficient there; 1 where it has none
struct ClipCoefficient {
  float clip;

  explicit ClipCoefficient(double clip_norm) : clip(static_cast<float>(clip_norm)), clips(clip_norm > 0) {}

  GRADLEDGER_HD float operator()(double squared_norm) const {
    const float coefficient = clip / (static_cast<float>(root(squared_norm)) + static_cast<float>(clip_guard));
    return clips && coefficient < 1.0f ? coefficient : 1.0f;
  }

 private:
  bool clips;
};

// *target = function(*source). Launched with n = 1.
template <class Function>
struct OfScalar {
  static constexpr std::size_t width = 1;
  float* target;
  const double* source;
  Function function;

  bool aligned_at(std::size_t) const { return true; }
  template <std::size_t w>
  GRADLEDGER_HD double fetch(std::size_t) const {
    return *source;
  }
  template <std::size_t w>
  GRADLEDGER_HD void finish(std::size_t, double x) const {
    *target = function(x);
  }
};

// ---- from dtypes to operations, as in gpu/dispatch.h -------------------------------------------------------------------------

namespace dispatch {

template <class Run>
void unscale(Run&& run, Dtype dtype, void* target, float factor, std::size_t n, std::uint8_t* flag) {
  numeric::with_dtype(dtype, [&](auto t) { run(Unscale<decltype(t)>{static_cast<decltype(t)*>(target), factor, flag}, n); });
}

template <class Run>
void multiply_by_stored(Run&& run, Dtype dtype, void* target, const float* factor, std::size_t n) {
  numeric::with_dtype(dtype, [&](auto t) {
    using T = decltype(t);
    run(Map<T, T, MultipliedByStored<T>>{static_cast<T*>(target), static_cast<const T*>(target), {factor}}, n);
  });
}

// run(program, blocks) here: see tree_sum.
template <class Run>
void accumulate_with_norm(Run&& run, Dtype target_dtype, void* target, Dtype source_dtype, const void* source, float factor, std::size_t n, double* norm, std::uint8_t* flag,
                          double* workspace) {
  numeric::with_dtype(target_dtype, [&](auto t) {
    numeric::with_dtype(source_dtype, [&](auto s) {
      using T = decltype(t);
      using S = decltype(s);
      tree_sum(run, SquaresOfSums<T, S>{static_cast<T*>(target), static_cast<const S*>(source), factor, flag}, n, norm, workspace);
    });
  });
}

template <class Run>
void adam_mixed(Run&& run, const numeric::MixedAdamCall& call, float factor, const float* coefficient, const numeric::AdamScalars& s, std::size_t n) {
  expects(call.output_dtype == Dtype::bfloat16 || call.output_dtype == Dtype::float16, "the second copy of the parameters has 16 bits");
  const auto step = [&](const auto& formula, auto gradient, auto output) {
    using Formula = std::decay_t<decltype(formula)>;
    using G = decltype(gradient);
    using Output = decltype(output);
    run(MixedAdam<Formula, G, Output>{call.parameter, static_cast<const G*>(call.gradient), call.first, call.second, static_cast<Output*>(call.output), factor, coefficient,
                                      formula},
        n);
  };
  const auto with_formula = [&](const auto& formula) {
    numeric::with_dtype(call.gradient_dtype, [&](auto gradient) {
      if (call.output_dtype == Dtype::bfloat16) step(formula, gradient, Bf16{});
      else step(formula, gradient, Fp16{});
    });
  };
  if (call.cpu_formula) with_formula(CpuAdamFormula(s));
  else with_formula(FusedAdamFormula{s});
}

template <class Run>
void combined_factor(Run&& run, const double* squared_norm, double scale, double clip, float* factor) {
  run(OfScalar<CombinedFactor>{factor, squared_norm, CombinedFactor(scale, clip)}, 1);
}

template <class Run>
void clip_coefficient(Run&& run, const double* squared_norm, double clip, float* coefficient) {
  run(OfScalar<ClipCoefficient>{coefficient, squared_norm, ClipCoefficient(clip)}, 1);
}

}  // namespace dispatch
}  // namespace gradledger::gpu
