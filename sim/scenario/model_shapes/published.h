// Shapes of models as they are published: configurations, and the parameters that transformers makes of each.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradledger {

// One tensor of a model, as its parameters are listed.
struct TensorShape {
  std::string name;
  std::uint64_t numel = 0;
  std::uint64_t rows = 0;  // its first dimension, where it has several; 0: it has one, or nobody says

  bool operator==(const TensorShape&) const = default;
};

// How a layer is built, and in which order it lists its parameters.
enum class ModelFamily : std::uint8_t { gpt2, llama, mixtral, qwen2, qwen3, qwen3_moe };

// What a published config.json says of shapes.
struct PublishedModel {
  std::string_view name;          // as scenarios and --model say it
  std::string_view published_as;  // whose config.json it is
  ModelFamily family = ModelFamily::llama;
  std::uint64_t vocabulary = 0, hidden = 0, intermediate = 0;  // intermediate: of each expert where there are experts
  std::uint32_t layers = 0;
  std::uint64_t heads = 0, key_value_heads = 0, head_size = 0;
  std::uint64_t positions = 0;  // that have an embedding of their own; 0: none
  std::uint32_t experts = 0;    // 0: every token takes the same way
  bool tied = false;            // the head is the embedding
};

std::span<const PublishedModel> published_models();
// Null where none has the name.
const PublishedModel* published_model(std::string_view name);
std::string published_model_names();  // "gpt2, gpt2-medium, ..."

// In the order of model.parameters(), in which ZeRO cuts its partitions. A tied head is no parameter of its own, as there.
const std::vector<TensorShape>& shapes_of(const PublishedModel& model);

std::uint64_t numel_of(std::span<const TensorShape> shapes);

// The tensors of each layer, those that have the same words in their names up to the first number: "model.layers.0.". What has no number is left out.
std::vector<std::vector<std::string>> layers_of(std::span<const TensorShape> shapes);

}  // namespace gradledger
