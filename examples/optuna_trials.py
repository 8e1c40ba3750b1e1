#!/usr/bin/env python3
"""Searches the learning rate and the width of a model by Optuna: twenty trials, each a job of the daemon. A trial whose held-out loss is worse
than the median of the others is stopped by a checkpoint. Needs the Python client and optuna; jobs run side by side if the daemon has slots.

    examples/optuna_trials.py STUDY [JOBS_AT_ONCE]
"""

import sys

import genesis
import optuna


def spec(trial):
    return {
        "model": {"world_model": {"hidden_size": trial.suggest_categorical("hidden_size", [32, 64, 128])}},
        "dataset": {"trajectories": {"path": "pendulum.npz"}},
        "training": {"max_steps": 300, "batch_size": 64},
        "optimizer": {"learning_rate": trial.suggest_float("learning_rate", 1e-5, 1e-1, log=True)},
        "evaluation": {"every_steps": 50},
        "scheduling": {"labels": {"study": trial.study.study_name}},
    }


def main(study_name, jobs_at_once="1"):
    client = genesis.Client()

    def objective(trial):
        # With the same ID a repeated call finds the job again.
        job = client.submit(spec(trial), job_id=f"{study_name}-{trial.number}")
        for event in job.events():
            if event.kind != "evaluated":
                continue
            trial.report(event.value.loss, event.value.step)
            if trial.should_prune():
                job.cancel()
                raise optuna.TrialPruned
        job.check()
        return job.refresh().message.evaluation.loss

    study = optuna.create_study(study_name=study_name, sampler=optuna.samplers.TPESampler(seed=1))
    study.optimize(objective, n_trials=20, n_jobs=int(jobs_at_once))
    for trial in study.trials:
        print(f"{study_name}-{trial.number}: {trial.state.name}, {trial.params}, held-out loss {trial.value}")
    print(f"best: {study_name}-{study.best_trial.number}, {study.best_params}, held-out loss {study.best_value:.6g}")


if __name__ == "__main__":
    main(*sys.argv[1:])
