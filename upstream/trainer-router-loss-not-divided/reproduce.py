"""Trainer adds the router's auxiliary loss once a micro-batch: it grows with gradient_accumulation_steps."""
import sys, tempfile, torch, transformers as tf


def update(model, rows, accumulation):
    """What one step of SGD (lr 1) over all rows changes, in micro-batches."""
    before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
    args = tf.TrainingArguments(tempfile.mkdtemp(), per_device_train_batch_size=len(rows) // accumulation, gradient_accumulation_steps=accumulation, num_train_epochs=1,
                                optim="sgd", learning_rate=1.0, lr_scheduler_type="constant", max_grad_norm=0, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True)
    tf.Trainer(model=model, args=args, train_dataset=rows).train()
    return torch.cat([p.detach().flatten() for p in model.parameters()]) - before


config = tf.MixtralConfig(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                          num_local_experts=4, num_experts_per_tok=1, output_router_logits=True, router_aux_loss_coef=1e4)
rows = [{"input_ids": torch.arange(1, 9), "labels": torch.arange(1, 9)}] * 4  # alike, so that every micro-batch has the same loss
updates = []
for accumulation in (1, 4):
    torch.manual_seed(0)
    updates.append(update(tf.MixtralForCausalLM(config), rows, accumulation))
expected, observed = 1.0, round((updates[1].norm() / updates[0].norm()).item(), 2)
print("update with gradient_accumulation_steps 4 over that with 1: expected", expected, "observed", observed)
sys.exit(observed != expected)
