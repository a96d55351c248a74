#!/bin/bash
# A sweep in a SLURM allocation: sbatch slurm.sh. Ray is started on all nodes, the command on one of them, and all end with it.
# Sent again after a time limit, it goes on from the journal.
#SBATCH --job-name=dysens
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00

set -euo pipefail
export RAY_USAGE_STATS_ENABLED=0
# Others on the network must not be able to run code in the allocation.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$HOME/.ray/$SLURM_JOB_ID.token"
mkdir -p "$HOME/.ray"
(umask 077 && head -c 32 /dev/urandom | base64 > "$RAY_AUTH_TOKEN_PATH")
trap 'rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" \
    ray symmetric-run --address "$head:6379" --min-nodes "$SLURM_JOB_NUM_NODES" --num-cpus "$SLURM_CPUS_PER_TASK" -- \
    dysens sweep net:build --input-shape 1,3,224,224 --sen-file sens.jsonl \
    --workers 16 --ray auto --cpus-per-worker 4
