"""Tests what genesisctl shows in a terminal: tmux runs it, and the tests read the screen."""

import subprocess
import tempfile
import unittest

import harness


class Terminal:
    """A tmux server of its own with one window of a given size."""

    def __init__(self, test, columns=130, rows=30):
        self.socket = test.enterContext(tempfile.TemporaryDirectory()) + "/tmux"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), "env", "PS1=prompt> ", "sh")
        test.addCleanup(self.tmux, "kill-server")
        harness.wait_for("the shell", lambda: "prompt>" in self.screen())

    def tmux(self, *words):
        return subprocess.run(["tmux", "-S", self.socket, *words], check=True, capture_output=True, text=True, timeout=harness.LONG).stdout

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def run(self, *words):
        """Types a command line."""
        self.tmux("send-keys", "-l", " ".join(map(str, words)))
        self.press("Enter")

    def press(self, key):
        self.tmux("send-keys", key)

    def wait_for(self, *texts):
        """Returns the screen when it has all texts."""
        def found():
            screen = self.screen()
            return screen if all(text in screen for text in texts) else None

        return harness.wait_for(f"{texts} on the screen", found)


class TerminalTest(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start()
        self.daemon.train("first", harness.spec(max_steps=300))
        self.daemon.wait_for_end("first")
        self.daemon.train("endless", harness.spec(max_steps=10**9))
        self.daemon.wait_for_step("endless", 100)

    def command(self, *words):
        return [str(harness.BIN / "genesisctl"), "--server", self.daemon.grpc, *words]

    def test_top_is_live_and_gives_the_screen_back(self):
        terminal = Terminal(self)
        terminal.run(*self.command("top"))
        screen = terminal.wait_for("endless  RUNNING", "first    SUCCEEDED", "reduced precision: ", "-> endless")
        self.assertRegex(screen, "[▁▂▃▄▅▆▇█]{8}")
        self.daemon.train("waits", harness.spec(max_steps=10))
        terminal.wait_for("waits    QUEUED")
        terminal.tmux("resize-window", "-x", "50", "-y", "8")
        narrow = terminal.wait_for("endless  RUNNING")
        self.assertLessEqual(max(map(len, narrow.splitlines())), 50)
        port = self.daemon.grpc
        self.daemon.kill()
        terminal.wait_for("does not respond")
        self.daemon = self.start("--grpc-listen", port)
        terminal.tmux("resize-window", "-x", "130", "-y", "30")
        terminal.wait_for("endless", "waits", "jobs: ")
        terminal.press("q")
        terminal.wait_for("\nprompt>")  # The prompt after the command; keys that are pressed before it go to the command.
        self.assertNotIn("SUCCEEDED", terminal.screen())
        terminal.run("echo", "still", "typed")
        terminal.wait_for("\nstill typed")

    def test_top_ends_by_ctrl_c(self):
        terminal = Terminal(self)
        terminal.run(*self.command("top"))
        terminal.wait_for("endless  RUNNING")
        terminal.press("C-c")
        terminal.wait_for("\nprompt>")  # The terminal echoes earlier keys twice.
        terminal.run("echo", "code", "$?")
        terminal.wait_for("\ncode 0")

    def test_watch_draws_one_line(self):
        terminal = Terminal(self)
        terminal.run(*self.command("watch", "endless"))
        screen = terminal.wait_for("endless  RUNNING  ", "samples/s", "ETA")
        self.assertRegex(screen, r"loss [0-9.e-]+ [▁▂▃▄▅▆▇█]+  scale")
        self.assertEqual(screen.count("endless  RUNNING"), 1)
        terminal.press("C-c")
        terminal.wait_for("the watch ended; job endless goes on")

    def test_tables_fit_a_terminal_and_are_whole_in_a_pipe(self):
        terminal = Terminal(self, columns=80)
        terminal.run("clear;", *self.command("checkpoints"))
        lines = terminal.wait_for("first-step-", "…", "\nprompt>").splitlines()
        begin, end = (next(i for i, line in enumerate(lines) if line.startswith(start)) for start in ("ID ", "prompt>"))
        for line in lines[begin + 1:end]:
            self.assertRegex(line, "^(first|endless)-step-.*…$", "a row is one line")
        path = self.daemon.job("first")["latest_checkpoint"]["path"]
        self.assertNotIn(path, "".join(lines))
        piped = subprocess.run(self.command("checkpoints"), check=True, capture_output=True, text=True, timeout=harness.LONG).stdout
        self.assertIn(path, piped)
        self.assertNotIn("…", piped)

    def test_completion_of_each_shell_knows_commands_and_jobs(self):
        home = self.enterContext(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))  # fish still writes its history.
        for shell, setup in (("bash --norc", "source <(genesisctl completion bash); PS1='ready> '"),
                             ("zsh -f", "autoload -U compinit; compinit -D; source <(genesisctl completion zsh); PS1='ready> '"),
                             ("fish --no-config", "genesisctl completion fish | source; function fish_prompt; echo -n 'ready> '; end")):
            with self.subTest(shell):
                terminal = Terminal(self)
                terminal.run("exec", "env", f"HOME={home}", f"GENESIS_SERVER={self.daemon.grpc}", f"PATH={harness.BIN}:$PATH", shell)
                terminal.run(setup)
                terminal.wait_for("\nready>")
                for line, whole in (("genesisctl drain-w", "genesisctl drain-worker"), ("genesisctl job en", "genesisctl job endless"),
                                    ("genesisctl jobs --output y", "genesisctl jobs --output yaml")):
                    terminal.tmux("send-keys", "-l", line)
                    terminal.press("Tab")
                    terminal.wait_for(whole)
                    terminal.press("C-u")
                    harness.wait_for("an empty line", lambda: terminal.screen().split()[-1] == "ready>")

    def test_without_a_terminal_nothing_moves(self):
        done = subprocess.run(self.command("top"), check=True, capture_output=True, text=True, timeout=harness.LONG)
        self.assertIn("endless  RUNNING", done.stdout)
        self.assertNotIn("\x1b", done.stdout)


if __name__ == "__main__":
    unittest.main()
