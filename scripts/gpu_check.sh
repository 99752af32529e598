#!/usr/bin/env bash
# What a machine with an NVIDIA GPU and Rust is asked to show: the command is built for CUDA, the model agrees with transformers there
# (the parity tests of firebrick-models), runs train on the GPU, and steps are measured at two sizes. Results are written to "$OUT" (default: gpu-check in the repository).
#
#   scripts/gpu_check.sh
#   OUT=/tmp/gpu STEPS=5 scripts/gpu_check.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out="${OUT:-gpu-check}"
device="${DEVICE:-cuda:0}"
steps="${STEPS:-20}"
# Tests on the CUDA backend, each as the arguments of one `cargo test --release`: the model against plain loops and finite
# differences, and objectives through real autodiff to the logits.
cuda_tests=(
    "--package firebrick-models --features cuda --lib"
    "--package firebrick-trainer --features cuda --test trainer cuda"
)

mkdir -p "$out"
nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader | tee "$out/gpu.txt"

cargo build --release --package firebrick-cli --no-default-features --features cuda
firebrick="${CARGO_TARGET_DIR:-target}/release/firebrick"

for arguments in "${cuda_tests[@]}"; do
    # Split into words on purpose.
    # shellcheck disable=SC2086
    cargo test --release $arguments
done

"$firebrick" train configs/math-cpu.toml --set "train.steps=$steps" --device "$device" \
    --run-dir "$out/math" --overwrite 2>&1 | tee "$out/math.log"

# 20 steps of TAPO with a decoder of the shape of Qwen2-0.5B and random weights, and the memory that they take at the peak.
nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits --loop=1 > "$out/memory.txt" &
watch=$!
trap 'kill "$watch" 2>/dev/null || true' EXIT
"$firebrick" train configs/math-small.toml --set model.hidden_size=896 --set model.intermediate_size=4864 \
    --set model.num_hidden_layers=24 --set model.num_attention_heads=14 --set model.num_key_value_heads=2 \
    --set model.attention_bias=true --set model.initializer_range=0.02 --set warm_start.steps=5 \
    --set "train.steps=$steps" --device "$device" --run-dir "$out/half-billion" --overwrite 2>&1 | tee "$out/half-billion.log"
kill "$watch"
echo "peak memory: $(sort -n "$out/memory.txt" | tail -1) MiB"

"$firebrick" bench step --shape small --device "$device" --json | tee "$out/bench-small.json"
"$firebrick" bench step --shape small --device "$device" --json --repetitions 3 \
    --layers 24 --hidden 896 --heads 14 --kv-heads 2 --ffn 4864 --vocab 151936 | tee "$out/bench-0.5b.json"

echo "all of it passed; results are in $out"
