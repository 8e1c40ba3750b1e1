"""Services whose settings are the environment file of a host, /etc/genesis/environment. Its lines are only appended, as operators do."""

import os
import pathlib
import re

from command import Command
from target import Target, require

MARK = "# rollback.sh canary: ENABLE_FP16_TRAINING was "
# Removes the values of tokens, keys and passwords.
REDACT = r"s/^([^=#]*(TOKEN|SECRET|PASSWORD|KEY)[^=]*)=.*/\1=(removed)/"


class HostTarget(Target):
    """A service on one host. As a canary, the host is one part of a fleet; its previous gate is a comment in the environment file."""

    def __init__(self, options, progress):
        super().__init__(options, progress)
        self.file = pathlib.Path(options.environment_file)
        self.redacted = Command(["sed", "-E", REDACT, options.environment_file])

    def newest_in_file(self, pattern):
        """Returns the values of the last line that begins with `pattern`, as a list of one; an empty list if there is none. The last line
        wins, as in systemd and the container's entry point."""
        try:
            text = self.file.read_text(errors="surrogateescape")
        except OSError:
            text = ""
        return re.findall(f"^{pattern}(.*)$", text, re.MULTILINE)[-1:]

    def gate(self):
        return "".join(self.newest_in_file("[ \t]*ENABLE_FP16_TRAINING=")).translate({ord(quote): None for quote in "\"'"})

    def set_gate(self, gate):
        self.append(f"ENABLE_FP16_TRAINING={gate}")

    def append(self, line):
        self.progress.note(f"+ echo '{line}' >> {self.options.environment_file}")
        if self.options.dry_run:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        before = self.file.read_bytes() if self.file.exists() else b""
        with open(self.file, "ab") as file:
            # Without a newline at the end, the last line would absorb the new one.
            file.write((b"\n" if before and not before.endswith(b"\n") else b"") + os.fsencode(line) + b"\n")
            if not before:
                # Readable by a container's user.
                os.fchmod(file.fileno(), 0o644)
            file.flush()
            os.fsync(file.fileno())

    def canary_start(self):
        self.append(MARK + self.gate())
        self._restart_as("false", "canary")

    def canary_promote(self):
        self._restart_as("false", "stable")

    def canary_abort(self):
        before = self.newest_in_file(re.escape(MARK))
        require(before, f"{self.file} has no trace of a canary that was started here; nothing was changed")
        self._restart_as(before[0] or "false", "stable")

    def _restart_as(self, gate, deployment):
        self.set_gate(gate)
        self.append(f"GENESIS_DEPLOYMENT={deployment}")
        self.restart(gate)
