"""The interface of what can be rolled back: a service and its manager."""

from command import Command, Failure


class Target:
    """A service under one service manager. A gate is the text "true" or "false". A command that fails raises `Failure`.

    Each kind defines the methods below. Methods that change something print their commands; a dry run only prints them.

    name(), log_hint()           how texts call the service, and where a user finds its log
    found(), check()             whether it exists here; raises `Failure` unless it does and can be changed
    inside(*words, stdin="")     the command that runs `words` beside the daemon
    gate(), set_gate(gate)       the gate of the next start, empty if it is not set
    restart(gate), kill()        restarts with that gate; kills without a checkpoint
    running()                    "active", otherwise the state that the manager reports
    log(lines)                   the command that prints the newest lines of the log
    details()                    (file, command) of what the post-mortem saves
    canary_start(), canary_promote(), canary_abort()
    """

    kind = ""
    default_http, default_server = "http://127.0.0.1:8080", "127.0.0.1:50051"
    # Whether the daemon runs in a container, with files and an environment of its own.
    remote = True

    def __init__(self, options, progress):
        self.options, self.progress = options, progress

    def run(self, *words):
        self.progress.run(Command(list(words)))

    def canary_wait(self, daemon):
        """Waits until the canary runs. Later calls refer to the canary, unless it is the service itself."""
        daemon.wait_until_ready()


def require(condition, text):
    if not condition:
        raise Failure(text)
