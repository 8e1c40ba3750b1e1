"""The program genesis-rollback. deploy/rollback.sh runs this folder with the name under which it was called and the user's words."""

import contextlib
import os
import sys

if sys.version_info < (3, 9):
    sys.exit(f"rollback.sh: python3 is {sys.version.split()[0]}; install Python 3.9 or newer")

INTERRUPTED, BROKEN_PIPE = 130, 141


def main(program, words):
    """Runs a procedure and returns the exit code. Every error is one line on standard error."""
    # Flush each line when it is printed, also into a pipe.
    sys.stdout.reconfigure(line_buffering=True)
    # A web proxy cannot reach listeners of this machine.
    others = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    os.environ["no_proxy"] = ",".join(filter(None, (others, "localhost,127.0.0.1,::1")))
    try:
        # Imported here, because an interrupt can come at any moment.
        import arguments
        import procedures
        from command import Failure
        return procedures.run(arguments.parse(words))
    except KeyboardInterrupt:
        text, code = "interrupted; what the printed steps have changed stays changed", INTERRUPTED
    except BrokenPipeError:
        # Otherwise the interpreter tries to write the rest of the output when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        text, code = "its output is not read any more; what the printed steps have changed stays changed", BROKEN_PIPE
    except Failure as failure:
        text, code = str(failure), failure.code
    except OSError as error:
        text, code = str(error), 1
    if text:
        with contextlib.suppress(BrokenPipeError):
            print(f"{program}: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
