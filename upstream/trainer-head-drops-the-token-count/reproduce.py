"""Trainer does not divide by gradient_accumulation_steps for T5, whose loss does not use num_items_in_batch either."""
import sys, tempfile, torch, transformers as tf


def update(model, rows, accumulation):
    """What one step of SGD (lr 1) over all rows changes, in micro-batches."""
    before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
    args = tf.TrainingArguments(tempfile.mkdtemp(), per_device_train_batch_size=len(rows) // accumulation, gradient_accumulation_steps=accumulation, num_train_epochs=1,
                                optim="sgd", learning_rate=1.0, lr_scheduler_type="constant", max_grad_norm=0, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True)
    tf.Trainer(model=model, args=args, train_dataset=rows).train()
    return torch.cat([p.detach().flatten() for p in model.parameters()]) - before


config = tf.T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, dropout_rate=0, decoder_start_token_id=0)
rows = [{"input_ids": row, "labels": row} for row in torch.arange(1, 33).remainder(32).view(4, 8)]
updates = []
for accumulation in (1, 4):
    torch.manual_seed(0)
    updates.append(update(tf.T5ForConditionalGeneration(config), rows, accumulation))
expected, observed = 1.0, round((updates[1].norm() / updates[0].norm()).item(), 3)
print("update with gradient_accumulation_steps 4 over that with 1: expected", expected, "observed", observed)
sys.exit(observed != expected)
