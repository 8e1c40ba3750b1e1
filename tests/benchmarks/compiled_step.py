"""The compiled step beside our eager one, for the workloads of docs/compiled_step.md."""

import json
import pathlib
import subprocess
import tempfile

import sides

MODES = ("FP32", "MIXED_BF16")


def world(hidden, latent):
    return {"model": {"world_model": {"hidden_size": hidden, "latent_size": latent}},
            "dataset": {"synthetic": {"trajectories": {}}}}


WORKLOADS = {
    "world_model 256, batch 128": (world(256, 64), 128),
    "world_model 256, batch 32": (world(256, 64), 32),
    "world_model 2048, batch 512": (world(2048, 512), 512),
    "transformer 6x384, batch 4": ({
        "model": {"transformer": {"vocabulary_size": 4096, "context_length": 128, "layers": 6,
                                  "heads": 6, "embedding_size": 384}},
        "dataset": {"synthetic": {"tokens": {}}}}, 4),
    "radio_unet 32 at 32x32, batch 8": ({
        "model": {"radio_unet": {"base_channels": 32, "channel_multipliers": [1, 2, 2]}},
        "dataset": {"synthetic": {"maps": {"size": 32}}}}, 8),
}


def measure(program, name, folder, rounds):
    settings, batch = WORKLOADS[name]
    job = folder / "job.json"
    job.write_text(json.dumps({**settings, "precision": {"mode": "MIXED_BF16"},
                               "training": {"max_steps": 1000, "batch_size": batch}}))
    sides.compile_step(job, folder / "compiled")
    for mode in MODES:
        done = subprocess.run([program, job, folder / "compiled", mode, str(rounds)],
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{name}, {mode}: {done.stderr}")
        yield {"workload": name, "mode": mode, **json.loads(done.stdout)}


def run(program, machine, rounds, out, only):
    results = []
    print(f"{'workload':34}{'mode':12}{'threads':>8}{'eager ms':>10}{'compiled':>10}"
          f"{'ratio':>8}  95 % interval     losses within")
    for name in WORKLOADS:
        if only and only not in name:
            continue
        with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
            for row in measure(program, name, pathlib.Path(folder), rounds):
                results.append(row)
                print(f"{row['workload']:34}{row['mode']:12}{row['threads']:8}{row['eager_ms']:10.3f}"
                      f"{row['compiled_ms']:10.3f}{row['ratio']:8.2f}  {row['low']:.2f} to "
                      f"{row['high']:.2f}      {row['loss_difference']:.1e}", flush=True)
    if out:
        pathlib.Path(out).write_text(json.dumps({"machine": machine, "results": results}, indent=1))
