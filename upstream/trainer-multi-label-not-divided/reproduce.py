"""Trainer does not divide multi-label losses by gradient_accumulation_steps: BCEWithLogitsLoss knows no num_items_in_batch."""
import sys, tempfile, torch, transformers as tf


def update(model, rows, accumulation):
    """What one step of SGD (lr 1) over all rows changes, in micro-batches."""
    before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
    args = tf.TrainingArguments(tempfile.mkdtemp(), per_device_train_batch_size=len(rows) // accumulation, gradient_accumulation_steps=accumulation, num_train_epochs=1,
                                optim="sgd", learning_rate=1.0, lr_scheduler_type="constant", max_grad_norm=0, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True)
    tf.Trainer(model=model, args=args, train_dataset=rows).train()
    return torch.cat([p.detach().flatten() for p in model.parameters()]) - before


config = tf.ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=8, patch_size=4, num_labels=3,
                      hidden_dropout_prob=0, attention_probs_dropout_prob=0, problem_type="multi_label_classification")
rows = [{"pixel_values": torch.full((3, 8, 8), float(i)), "labels": torch.eye(3)[i % 3]} for i in range(4)]
updates = []
for accumulation in (1, 4):
    torch.manual_seed(0)
    updates.append(update(tf.ViTForImageClassification(config), rows, accumulation))
expected, observed = 1.0, round((updates[1].norm() / updates[0].norm()).item(), 3)
print("update with gradient_accumulation_steps 4 over that with 1: expected", expected, "observed", observed)
sys.exit(observed != expected)
