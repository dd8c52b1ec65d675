"""What a GRPOTrainer of TRL divides the loss of a micro-batch by, where it is installed: by its loss_type, as `gradledger audit --loop grpo` expands it.
Read off the gradient of each token's log probability, which is the token's weight times its advantage."""
from __future__ import annotations

import pytest
import torch
from ranks_of_a_test import run
from test_observe_trainers import needs

RANKS, SEQUENCES, TOKENS_MAX = 2, 2, 12  # sequences: of a micro-batch


def trainer_of(folder, loss_type, accumulation, slices, iterations):
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["<pad>", "<eos>"] + [f"w{i}" for i in range(30)])}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", padding_side="left")
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=64, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=1, eos_token_id=1,
                                       pad_token_id=0))
    arguments = GRPOConfig(folder, loss_type=loss_type, gradient_accumulation_steps=accumulation, steps_per_generation=slices, num_iterations=iterations,
                           per_device_train_batch_size=SEQUENCES, num_generations=2, max_completion_length=TOKENS_MAX, max_steps=3, use_cpu=True, bf16=False, report_to=[],
                           save_strategy="no", disable_tqdm=True, logging_strategy="no", beta=0.0, temperature=3.0, learning_rate=0.0)
    prompts = Dataset.from_dict({"prompt": [f"w{i % 30} w{(i * 7) % 30}" for i in range(64)]})
    return GRPOTrainer(model, reward_funcs=lambda completions, **_: [float(sum(map(ord, text)) % 17) for text in completions], args=arguments, train_dataset=prompts,
                       processing_class=tokenizer)


def weights_seen(folder, loss_type, accumulation, slices, iterations):
    """By micro-batch: the lengths of its sequences, the weight of a token of each (None where all rewards are alike), the tokens of its generation on all ranks."""
    def on_rank(rank):
        trainer = trainer_of(folder, loss_type, accumulation, slices, iterations)
        inner_logps, inner_step = trainer._get_per_token_logps_and_entropies, trainer.training_step
        seen, leaves = [], []

        def logps(*arguments, **named):
            out = inner_logps(*arguments, **named)
            if torch.is_grad_enabled():
                out[0].retain_grad()
                leaves.append(out[0])
            return out

        def step(*arguments, **named):
            out = inner_step(*arguments, **named)
            inputs = trainer._buffered_inputs[(trainer._step - 1) % slices]
            masks, advantages, gradients = inputs["completion_mask"].bool(), inputs["advantages"], leaves.pop().grad
            each = [float((-gradients[i][mask] / advantages[i]).mean()) if advantages[i] else None for i, mask in enumerate(masks)]
            seen.append((masks.sum(1).tolist(), each, int(inputs["num_items_in_batch"])))
            return out
        trainer._get_per_token_logps_and_entropies, trainer.training_step = logps, step
        trainer.train()
        return seen
    return on_rank


def weight_due(loss_type, lengths, sequence, items, accumulation, slices):
    if loss_type == "dapo":
        return RANKS * slices / (items * accumulation)
    divisor = {"grpo": SEQUENCES * lengths[sequence], "bnpo": sum(lengths), "dr_grpo": SEQUENCES * TOKENS_MAX}[loss_type]
    return 1 / (divisor * accumulation)


@needs("trl")
@pytest.mark.parametrize(("loss_type", "accumulation", "slices", "iterations"),
                         [("grpo", 2, 2, 1), ("bnpo", 2, 2, 1), ("dr_grpo", 2, 2, 1), ("dapo", 2, 2, 1), ("dapo", 2, 4, 1), ("dapo", 4, 2, 1), ("dapo", 2, 2, 2)])
def test_a_micro_batch_of_grpo_is_divided_as_its_loss_type_has_it(tmp_path, loss_type, accumulation, slices, iterations):
    compared = 0
    for seen in run(RANKS, weights_seen(str(tmp_path), loss_type, accumulation, slices, iterations), backend="gloo").returned:
        assert len(seen) == 3 * accumulation
        for lengths, weights, items in seen:
            for i, weight in enumerate(weights):
                if weight is not None:
                    torch.testing.assert_close(torch.tensor(weight), torch.tensor(weight_due(loss_type, lengths, i, items, accumulation, slices)))
                    compared += 1
    assert compared > 3 * accumulation
