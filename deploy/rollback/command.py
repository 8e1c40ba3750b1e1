"""Programs that are run with lists of arguments, and the error that ends this one."""

import re
import shlex
import subprocess
import sys
import typing


class Failure(Exception):
    """An error that ends the program. Its text, if there is one, goes to standard error, and `code` is the exit code."""

    def __init__(self, text="", code=1):
        super().__init__(text)
        self.code = code


def unusable(text):
    """Returns the error for an option or a word that is not accepted."""
    return Failure(f"{text}; see rollback.sh --help", 2)


class Command(typing.NamedTuple):
    """A program with its arguments and its complete standard input. `shown` are the words that a user would type, if they differ."""

    words: list
    stdin: str = ""
    shown: typing.Optional[list] = None

    def __str__(self):
        return " ".join(map(quoted, self.shown or self.words))

    def run(self, stdout=subprocess.PIPE, stderr=None):
        """Runs the program and returns the finished process. If it cannot be started, the exit code is 127, as in a shell."""
        try:
            return subprocess.run(self.words, input=self.stdin, stdout=stdout, stderr=stderr, encoding="utf-8",
                                  errors="surrogateescape", check=False)
        except OSError as error:
            text = f"{self.words[0]}: {error.strerror}\n"
            if stderr is None:
                sys.stderr.write(text)
            return subprocess.CompletedProcess(self.words, 127, text if stderr == subprocess.STDOUT else "", text)

    def output(self):
        """Returns what the program prints; raises `Failure` if it fails."""
        done = self.run()
        if done.returncode != 0:
            raise self.failure(done.returncode)
        return done.stdout

    def failure(self, code):
        return Failure(f"this command failed: {self}", code if code > 0 else 128 - code)

    def succeeds(self):
        """Returns whether the program succeeds; its output is not shown."""
        return self.run(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def quoted(word):
    """Returns the word quoted for bash, like printf %q."""
    if not word or not word.isprintable():
        return shlex.quote(word)
    return re.sub(r"""^[#~]|(?<=[:=])~|[] !"$&'()*,;<>?[\\^`{|}]""", r"\\\g<0>", word)
