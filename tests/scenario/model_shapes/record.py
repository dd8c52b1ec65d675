"""Writes recorded.json beside this file: what transformers makes of published configurations, for tests/scenario/model_shapes_test.cpp.

    pip install torch transformers
    python tests/scenario/model_shapes/record.py

No weights are loaded and none are made: the models are built on the device "meta".
"""
import json
import pathlib

import torch
import transformers

# The keys of each published config.json that decide about shapes.
GPT2 = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024}
LLAMA = {"model_type": "llama", "vocab_size": 32000, "tie_word_embeddings": False}
QWEN2 = {"model_type": "qwen2"}
PUBLISHED = {
    "gpt2": ("openai-community/gpt2", {**GPT2, "n_embd": 768, "n_layer": 12, "n_head": 12}),
    "gpt2-medium": ("openai-community/gpt2-medium", {**GPT2, "n_embd": 1024, "n_layer": 24, "n_head": 16}),
    "gpt2-large": ("openai-community/gpt2-large", {**GPT2, "n_embd": 1280, "n_layer": 36, "n_head": 20}),
    "gpt2-xl": ("openai-community/gpt2-xl", {**GPT2, "n_embd": 1600, "n_layer": 48, "n_head": 25}),
    "llama-7b": ("huggyllama/llama-7b", {**LLAMA, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32}),
    "llama-2-7b": ("meta-llama/Llama-2-7b-hf",
                   {**LLAMA, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32}),
    "llama-2-70b": ("meta-llama/Llama-2-70b-hf",
                    {**LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8}),
    "llama-3-8b": ("meta-llama/Meta-Llama-3-8B",
                   {**LLAMA, "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}),
    "llama-3-70b": ("meta-llama/Meta-Llama-3-70B",
                    {**LLAMA, "vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8}),
    "mixtral-8x7b": ("mistralai/Mixtral-8x7B-v0.1",
                     {"model_type": "mixtral", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
                      "num_key_value_heads": 8, "num_local_experts": 8, "tie_word_embeddings": False}),
    "qwen2.5-0.5b": ("Qwen/Qwen2.5-0.5B",
                     {**QWEN2, "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
                      "num_key_value_heads": 2, "tie_word_embeddings": True}),
    "qwen2.5-7b": ("Qwen/Qwen2.5-7B",
                   {**QWEN2, "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
                    "num_key_value_heads": 4, "tie_word_embeddings": False}),
    "qwen3-8b": ("Qwen/Qwen3-8B",
                 {"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
                  "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": False}),
    "qwen3-30b-a3b": ("Qwen/Qwen3-30B-A3B",
                      {"model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
                       "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "decoder_sparse_step": 1, "mlp_only_layers": [],
                       "tie_word_embeddings": False}),
}


def fnv1a(text):
    """FNV-1a of 64 bits, as hexadecimal digits."""
    out = 0xCBF29CE484222325
    for byte in text.encode():
        out = (out ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{out:016x}"


def recorded(config):
    made = transformers.AutoConfig.for_model(**config)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(made)
    shapes = [(name, parameter.numel(), parameter.shape[0] if parameter.dim() > 1 else 0) for name, parameter in model.named_parameters()]
    layers = [i for i, (name, *_) in enumerate(shapes) if ".0." in name]
    return {"tensors": len(shapes), "numel": sum(numel for _, numel, _ in shapes), "fnv1a": fnv1a("".join(f"{name} {numel} {rows}\n" for name, numel, rows in shapes)),
            "through_the_first_layer": shapes[:layers[-1] + 1], "behind_the_layers": [s for s in shapes[layers[-1] + 1:] if not any(c.isdigit() for c in s[0].split("."))]}


def written(table):
    """One line a tensor: differences between two releases are then seen in a diff."""
    lines = json.dumps(table, indent=1).splitlines()
    out, joined = [], ""
    for line in lines:
        opens, closes = line.endswith("["), line.strip().rstrip(",") == "]"
        if joined and closes and not joined.endswith("[["):
            out.append(joined + "]" + ("," if line.endswith(",") else ""))
            joined = ""
        elif joined:
            joined += ("" if joined.endswith("[") else " ") + line.strip()
        elif opens and line.strip() == "[":
            joined = line
        else:
            out.append(line)
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    models = {name: {"published_as": source, "config": config, **recorded(config)} for name, (source, config) in PUBLISHED.items()}
    table = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0], "models": models}
    (pathlib.Path(__file__).parent / "recorded.json").write_text(written(table))
    for name, model in models.items():
        print(f"{name:16} {model['tensors']:5} {model['numel']:14,}")
