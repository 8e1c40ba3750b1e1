#!/usr/bin/env python3
"""Prints deploy/prometheus/genesis.rules.yml as the PrometheusRule manifest beside this file.

usage: deploy/kubernetes/monitoring/generate.py > deploy/kubernetes/monitoring/prometheus-rule.yaml
"""

import pathlib
import sys

import yaml

RULES = pathlib.Path(__file__).resolve().parents[2] / "prometheus" / "genesis.rules.yml"

HEAD = """\
# Printed by generate.py from deploy/prometheus/genesis.rules.yml; change the rules there.
"""


def manifest():
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "genesis", "labels": {"app": "genesis-training"}},
        "spec": yaml.safe_load(RULES.read_text()),
    }


def main():
    sys.stdout.write(HEAD + yaml.safe_dump(manifest(), sort_keys=False, width=100))


if __name__ == "__main__":
    main()
