"""Trainer counts the first label of each sequence of GPT2LMHeadModel, which its loss drops: updates are too small."""
import sys, tempfile, torch, transformers as tf


def update(model, rows, accumulation):
    """What one step of SGD (lr 1) over all rows changes, in micro-batches."""
    before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
    args = tf.TrainingArguments(tempfile.mkdtemp(), per_device_train_batch_size=len(rows) // accumulation, gradient_accumulation_steps=accumulation, num_train_epochs=1,
                                optim="sgd", learning_rate=1.0, lr_scheduler_type="constant", max_grad_norm=0, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True)
    tf.Trainer(model=model, args=args, train_dataset=rows).train()
    return torch.cat([p.detach().flatten() for p in model.parameters()]) - before


torch.manual_seed(0)
model = tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=32, n_embd=16, n_layer=1, n_head=2, n_positions=32, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
ids = torch.randint(32, (4, 8))  # 8 labels a row, 7 of them are predicted
model(input_ids=ids, labels=ids).loss.backward()
due = -torch.cat([p.grad.flatten() for p in model.parameters()])
model.zero_grad()
applied = update(model, [{"input_ids": row, "labels": row} for row in ids], 1)
expected, observed = 1.0, round((applied @ due / (due @ due)).item(), 3)
print("update of Trainer over that of loss.backward(): expected", expected, "observed", observed)
sys.exit(observed != expected)
