"""Steps with their elapsed time, commands printed before they run, and the confirmation word."""

import subprocess
import sys
import time

from command import Failure


class Progress:
    """The progress of one procedure on standard output. `times` are (elapsed time, text) of the steps that ended."""

    def __init__(self, options):
        self.options, self.times, self.began = options, [], time.monotonic()

    def perform(self, title, steps, confirmation=()):
        """Runs the steps, each (text, function), after `confirmation`, (word, question), until a function returns an exit code.
        Returns that code, or 0 if no function returns one."""
        self.began = time.monotonic()
        print(title + (" (dry run: nothing is changed)" if self.options.dry_run else ""))
        if confirmation:
            self.confirm(*confirmation)
        for number, (text, function) in enumerate(steps, 1):
            print(f"[{self.elapsed():>7}] {number}/{len(steps)} {text}")
            began = time.monotonic()
            code = function()
            self.times.append((elapsed_since(began), text))
            self.note(f"done in {self.times[-1][0]}")
            if code:
                return code
        return 0

    def elapsed(self):
        return elapsed_since(self.began)

    def note(self, text):
        print(f"            {text}")

    def run(self, command):
        """Prints the command, and runs it unless this is a dry run. Its output is indented; raises `Failure` if it fails."""
        self.note(f"+ {command}")
        if self.options.dry_run:
            return
        done = command.run(stderr=subprocess.STDOUT)
        for line in done.stdout.rstrip("\n").splitlines():
            self.note(f"  {line}")
        if done.returncode != 0:
            raise command.failure(done.returncode)

    def confirm(self, word, question):
        """Returns immediately with --yes; otherwise the user must type the word."""
        if self.options.dry_run or self.options.yes:
            return
        print(question)
        if not sys.stdin.isatty():
            raise Failure("nobody is at a terminal to confirm it; give --yes, or --dry-run to see what would be done")
        print(f"Type {word} to go on: ", end="", flush=True)
        typed = sys.stdin.readline().strip()
        if typed != word:
            raise Failure(f'"{typed}" is not {word}; nothing was changed')


def elapsed_since(moment):
    return f"{time.monotonic() - moment:.1f} s"
