#include "sim/scenario/model_shapes/published.h"

#include <algorithm>
#include <array>
#include <map>

#include "sim/base/contract.h"

namespace gradledger {
namespace {

using enum ModelFamily;

// In the order of the members: vocabulary, hidden, intermediate; layers; heads, those of keys and values, the size of one; positions; experts; tied.
constexpr PublishedModel models[] = {
    {"gpt2", "openai-community/gpt2", gpt2, 50257, 768, 3072, 12, 12, 12, 64, 1024, 0, true},
    {"gpt2-medium", "openai-community/gpt2-medium", gpt2, 50257, 1024, 4096, 24, 16, 16, 64, 1024, 0, true},
    {"gpt2-large", "openai-community/gpt2-large", gpt2, 50257, 1280, 5120, 36, 20, 20, 64, 1024, 0, true},
    {"gpt2-xl", "openai-community/gpt2-xl", gpt2, 50257, 1600, 6400, 48, 25, 25, 64, 1024, 0, true},
    {"llama-7b", "huggyllama/llama-7b", llama, 32000, 4096, 11008, 32, 32, 32, 128},
    {"llama-2-7b", "meta-llama/Llama-2-7b-hf", llama, 32000, 4096, 11008, 32, 32, 32, 128},
    {"llama-2-70b", "meta-llama/Llama-2-70b-hf", llama, 32000, 8192, 28672, 80, 64, 8, 128},
    {"llama-3-8b", "meta-llama/Meta-Llama-3-8B", llama, 128256, 4096, 14336, 32, 32, 8, 128},
    {"llama-3-70b", "meta-llama/Meta-Llama-3-70B", llama, 128256, 8192, 28672, 80, 64, 8, 128},
    {"mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1", mixtral, 32000, 4096, 14336, 32, 32, 8, 128, 0, 8},
    {"qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B", qwen2, 151936, 896, 4864, 24, 14, 2, 64, 0, 0, true},
    {"qwen2.5-7b", "Qwen/Qwen2.5-7B", qwen2, 152064, 3584, 18944, 28, 28, 4, 128},
    {"qwen3-8b", "Qwen/Qwen3-8B", qwen3, 151936, 4096, 12288, 36, 32, 8, 128},
    {"qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", qwen3_moe, 151936, 2048, 768, 48, 32, 4, 128, 0, 128},
};

// Lists a model's parameters in the order in which its modules are made.
class Listing {
 public:
  explicit Listing(const PublishedModel& model) : m_(model) {}

  std::vector<TensorShape> list() {
    if (m_.family == gpt2) list_gpt2();
    else list_decoder();
    return std::move(out_);
  }

 private:
  void add(std::string name, std::uint64_t numel) { out_.push_back({std::move(name), numel}); }
  void add(std::string name, std::uint64_t rows, std::uint64_t columns) { out_.push_back({std::move(name), rows * columns, rows}); }
  void add_linear(const std::string& name, std::uint64_t in, std::uint64_t out, bool bias) {
    add(name + ".weight", out, in);
    if (bias) add(name + ".bias", out);
  }
  // Conv1D of transformers, whose rows are inputs.
  void add_convolution(const std::string& name, std::uint64_t in, std::uint64_t out) {
    add(name + ".weight", in, out);
    add(name + ".bias", out);
  }
  void add_layer_norm(const std::string& name) {
    add(name + ".weight", m_.hidden);
    add(name + ".bias", m_.hidden);
  }

  // transformers/models/gpt2/modeling_gpt2.py, GPT2LMHeadModel, at 5.23.0.
  void list_gpt2() {
    add("transformer.wte.weight", m_.vocabulary, m_.hidden);
    add("transformer.wpe.weight", m_.positions, m_.hidden);
    for (std::uint32_t layer = 0; layer < m_.layers; ++layer) {
      const std::string at = "transformer.h." + std::to_string(layer) + ".";
      add_layer_norm(at + "ln_1");
      add_convolution(at + "attn.c_attn", m_.hidden, 3 * m_.hidden);
      add_convolution(at + "attn.c_proj", m_.hidden, m_.hidden);
      add_layer_norm(at + "ln_2");
      add_convolution(at + "mlp.c_fc", m_.hidden, m_.intermediate);
      add_convolution(at + "mlp.c_proj", m_.intermediate, m_.hidden);
    }
    add_layer_norm("transformer.ln_f");
  }

  // modeling_llama.py, modeling_mixtral.py, modeling_qwen2.py, modeling_qwen3.py and modeling_qwen3_moe.py, ...ForCausalLM, at 5.23.0.
  void list_decoder() {
    add("model.embed_tokens.weight", m_.vocabulary, m_.hidden);
    for (std::uint32_t layer = 0; layer < m_.layers; ++layer) {
      const std::string at = "model.layers." + std::to_string(layer) + ".";
      add_attention(at + "self_attn.");
      if (m_.experts > 0) add_experts(at + "mlp.");
      else add_mlp(at + "mlp.");
      add(at + "input_layernorm.weight", m_.hidden);
      add(at + "post_attention_layernorm.weight", m_.hidden);
    }
    add("model.norm.weight", m_.hidden);
    if (!m_.tied) add("lm_head.weight", m_.vocabulary, m_.hidden);
  }

  void add_attention(const std::string& at) {
    const std::uint64_t queries = m_.heads * m_.head_size, keys = m_.key_value_heads * m_.head_size;
    const bool biases = m_.family == qwen2;
    add_linear(at + "q_proj", m_.hidden, queries, biases);
    add_linear(at + "k_proj", m_.hidden, keys, biases);
    add_linear(at + "v_proj", m_.hidden, keys, biases);
    add_linear(at + "o_proj", queries, m_.hidden, false);
    if (m_.family != qwen3 && m_.family != qwen3_moe) return;
    add(at + "q_norm.weight", m_.head_size);
    add(at + "k_norm.weight", m_.head_size);
  }

  void add_mlp(const std::string& at) {
    add_linear(at + "gate_proj", m_.hidden, m_.intermediate, false);
    add_linear(at + "up_proj", m_.hidden, m_.intermediate, false);
    add_linear(at + "down_proj", m_.intermediate, m_.hidden, false);
  }

  // Since transformers 5 all experts of a layer are one tensor each way. Mixtral makes its router before them, Qwen3 behind them.
  void add_experts(const std::string& at) {
    if (m_.family == mixtral) add(at + "gate.weight", m_.experts, m_.hidden);
    add(at + "experts.gate_up_proj", m_.experts, 2 * m_.intermediate * m_.hidden);
    add(at + "experts.down_proj", m_.experts, m_.hidden * m_.intermediate);
    if (m_.family != mixtral) add(at + "gate.weight", m_.experts, m_.hidden);
  }

  const PublishedModel& m_;
  std::vector<TensorShape> out_;
};

bool is_number(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "model.layers.0." of "model.layers.0.mlp.gate.weight"; empty where no word is a number.
std::string_view layer_in(std::string_view name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    if (is_number(name.substr(begin, end - begin))) return name.substr(0, std::min(end + 1, name.size()));
    begin = end + 1;
  }
  return {};
}

}  // namespace

std::span<const PublishedModel> published_models() { return models; }

const PublishedModel* published_model(std::string_view name) {
  const auto at = std::find_if(std::begin(models), std::end(models), [&](const PublishedModel& m) { return m.name == name; });
  return at == std::end(models) ? nullptr : at;
}

std::string published_model_names() {
  std::string out;
  for (const PublishedModel& m : models) out += (out.empty() ? "" : ", ") + std::string(m.name);
  return out;
}

const std::vector<TensorShape>& shapes_of(const PublishedModel& model) {
  // All of them take a millisecond, once.
  static const auto all = [] {
    std::map<std::string_view, std::vector<TensorShape>> out;
    for (const PublishedModel& m : models) out[m.name] = Listing(m).list();
    return out;
  }();
  const auto found = all.find(model.name);
  expects(found != all.end(), "shapes are those of a published model");
  return found->second;
}

std::uint64_t numel_of(std::span<const TensorShape> shapes) {
  std::uint64_t out = 0;
  for (const TensorShape& shape : shapes) out += shape.numel;
  return out;
}

std::vector<std::vector<std::string>> layers_of(std::span<const TensorShape> shapes) {
  std::vector<std::vector<std::string>> out;
  std::string_view open;
  for (const TensorShape& shape : shapes) {
    const std::string_view layer = layer_in(shape.name);
    if (!layer.empty() && layer != open) out.emplace_back();
    if (!layer.empty()) out.back().push_back(shape.name);
    open = layer;
  }
  return out;
}

}  // namespace gradledger
