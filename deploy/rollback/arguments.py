"""The options of genesis-rollback. The help is also the grammar: it lists the options with their values and defaults."""

import argparse
import datetime
import os
import pathlib
import re
import sys

from command import Failure, unusable

USAGE = """\
usage: rollback.sh PROCEDURE [OPTION]...

Procedures:
  emergency        shut the gate, restart in FP32 (running jobs are checkpointed), verify, collect
  gradual          running jobs finish in reduced precision, new ones start in FP32; then the same
  canary ACTION    start, compare, promote or abort FP32 on a part of the service
  status           what is configured and what runs
  verify           is it FP32? Service, log, status, metrics, jobs, and a probe job
  re-enable        open the gate again, if the success criteria are met; exit code 3 if they are not

Where:
  --target KIND            systemd, kubernetes or compose (default: the one that is found)
  --http URL               HTTP of the daemon, as seen from beside it (default http://127.0.0.1:8080;
                           kubernetes: https)
  --server ADDRESS         gRPC of the daemon, likewise (default 127.0.0.1:50051; kubernetes:
                           unix:/tmp/genesis.sock); a token is taken from GENESIS_TOKEN_FILE
  --environment-file FILE  systemd, compose: default /etc/genesis/environment
  --log-file FILE          systemd: default /var/log/genesis/orchestrator.log
  --metrics-db FILE        default /var/lib/genesis/metrics.db
  --namespace NAME         kubernetes: default genesis
  --nodes "A B"            kubernetes, canary: the nodes of the canary
  --manifests FOLDER       kubernetes, canary: deploy/kubernetes of the sources
  --compose-file FILE      compose: default docker-compose.yml

How:
  --dry-run                print each step and change nothing
  --yes                    do not ask for the word
  --force                  emergency: kill instead of checkpoint; jobs go on from their last checkpoint
  --no-probe               verify without a probe job
  --wait-minutes N         gradual: time for running jobs to finish (default 20)
  --ready-timeout SECONDS  time for the service to come back (default 120)

For people:
  --reason TEXT            what went wrong; the incident text's IMPACT
  --severity P             P0, P1 or P2 (default P0 for emergency, P2 for gradual)
  --dashboard URL          for the incident text
  --output FOLDER          of the post-mortem (default /var/tmp/genesis-rollback-<time>)

Criteria of re-enable and canary compare:
  --prometheus URL         take the figures from there; else from genesisctl history
  --history FILE           CSV that genesisctl history --csv printed
  --stage S                staging, canary, 25, 50 or 100 (default 100)
  --days N                 days that have to be stable (default 7)
  --measure LABEL          only series with deployment=LABEL, stable or canary
  --hours N                canary compare: the hours looked back on (default 4)
  --now TIME               judge as of then, such as 2026-01-31T12:00:00Z

Exit codes:
  0  Done.
  1  A step or a check failed.
  2  Unusable option.
  3  re-enable: the criteria are not met.
"""

PROCEDURES = ("emergency", "gradual", "canary", "status", "verify", "re-enable")
# Per option: name, placeholder of its value, and the default if it is the last word of the line.
GRAMMAR = re.compile(r"""^  (--[a-z-]+)(?: ("[^"]*"|\S+))?  .*?(?:\bdefault ([^\s;]+?)\)?)?$""", re.MULTILINE)
CHOICES = {"--severity": ("P0", "P1", "P2"), "--stage": ("staging", "canary", "25", "50", "100"), "--measure": ("stable", "canary")}


def one_of(option, value, accepted):
    if value not in accepted:
        raise unusable(f'{option} is "{value}"; accepted: {" ".join(accepted)}')
    return value


def converted(option, placeholder, value):
    """Returns the value of an option in its type; raises `Failure` if it is not accepted."""
    if placeholder in ("N", "SECONDS"):
        if not re.fullmatch("[0-9]{1,6}", value):
            raise unusable(f'{option} is "{value}"; accepted: a whole number')
        return int(value)
    if placeholder == "TIME":
        try:
            found = datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
        except ValueError:
            raise unusable(f'{option} is "{value}"; accepted: a time such as 2026-01-31T12:00:00Z') from None
        return found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc)
    return one_of(option, value, CHOICES[option]) if option in CHOICES else value


def parse(words):
    """Returns the options as attributes, such as `dry_run` for --dry-run, with `procedure` and `action`, the word after it."""
    now = datetime.datetime.now(datetime.timezone.utc)
    placeholders, values, plain, rest = {}, {}, [], iter(words)
    for option, placeholder, default in GRAMMAR.findall(USAGE):
        placeholders[option] = placeholder
        values[option] = converted(option, placeholder, default.replace("<time>", f"{now:%Y%m%dT%H%M%SZ}")) if default else ""
    values.update({"--server": os.environ.get("GENESIS_SERVER", ""), "--now": now,
                   "--manifests": str(pathlib.Path(__file__).resolve().parents[1] / "kubernetes")})
    for word in rest:
        option, separator, value = word.partition("=")
        if word in ("-h", "--help"):
            print(USAGE, end="")
            raise Failure(code=0)
        if placeholders.get(word) == "":
            values[word] = True
        elif word.startswith("--"):
            if not separator and (value := next(rest, None)) is None:
                raise unusable(f"{word} needs a value")
            if not placeholders.get(option):
                raise unusable(f"{option} is no option")
            values[option] = converted(option, placeholders[option], value)
        else:
            plain.append(word)
    options = argparse.Namespace(**{option[2:].replace("-", "_"): value for option, value in values.items()})
    options.procedure, options.action = [*plain, "", ""][:2]
    if not options.procedure:
        print(USAGE, end="", file=sys.stderr)
        raise Failure(code=2)
    if options.procedure not in PROCEDURES:
        raise unusable(f'"{options.procedure}" is no procedure; accepted: {", ".join(PROCEDURES)}')
    if options.procedure != "canary" and options.action:
        raise unusable(f'"{options.action}" is one word too many')
    options.reason = options.reason or "FP16 training is causing failures in production"
    options.severity = options.severity or ("P0" if options.procedure == "emergency" else "P2")
    return options
