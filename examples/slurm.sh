#!/bin/sh
# One job by several ranks under Slurm; resumes after the time limit, a preemption or a failed node. See docs/distributed.md.
#   sbatch examples/slurm.sh job.yaml
#SBATCH --job-name=genesis
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@90
#SBATCH --requeue
#SBATCH --open-mode=append
set -u

# --kill-on-bad-exit: if one rank fails, Slurm also ends the others.
srun --kill-on-bad-exit=1 genesis-worker --spec "$1" --checkpoint-dir "${CHECKPOINT_DIR:-checkpoints}" --resume latest
status=$?
# 1: a signal stopped the job, with a checkpoint. After any other status, or scancel, the job is not requeued.
if [ "$status" -eq 1 ] && scontrol show job -o "$SLURM_JOB_ID" | grep -q JobState=RUNNING; then
  scontrol requeue "$SLURM_JOB_ID"
  sleep 60 # Slurm ends this script meanwhile.
fi
exit "$status"
