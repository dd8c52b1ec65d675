#!/bin/bash
# A model of 96 layers on one node of 8 GPUs.
NNODES=1
TP=2

DISTRIBUTED_ARGS=(
    --nproc_per_node ${GPUS:-8}
    --nnodes $NNODES
)
MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288   # "--overlap-param-gather" in a comment is none
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 32
    --bf16
    --optimizer adam
    --adam-beta1 0.9 --adam-beta2 0.95
    --lr 0.00006
    --clip-grad 1.0
    --overlap-grad-reduce
    --use-distributed-optimizer
    --overlap-grad-redcue
)

torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${MODEL_ARGS[@]} \
    ${TRAINING_ARGS[@]} --tensor-model-parallel-size $TP
