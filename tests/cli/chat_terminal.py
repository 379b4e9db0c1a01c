"""Talks with a program on a terminal of its own. Usage: chat_terminal.py SCRIPT COMMAND...
Each line of SCRIPT is a Python literal (str): it is typed once the program waits at a prompt ("> " or "... " at the end of what is shown). A line
"wait N" before it waits until N more bytes were shown instead. Prints what the terminal got, without carriage returns; the last line is the status."""
import ast
import os
import pty
import select
import sys
import time

pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
seen = ""
mark = 0


def more(seconds):
    """Reads what comes within so many seconds; False: nothing did, or the terminal was closed."""
    global seen
    if not select.select([fd], [], [], seconds)[0]:
        return False
    try:
        got = os.read(fd, 65536)
    except OSError:
        return False
    seen += got.decode(errors="replace").replace("\r", "")
    return bool(got)


def until(enough, what):
    end = time.time() + 60
    while not enough():
        if not more(max(0, end - time.time())):
            sys.exit(f"{what}: waited in vain behind {seen[-300:]!r}")


def at_prompt():
    while more(.2):
        pass
    return seen[mark:].endswith(("> ", "... "))


wanted = 0
for line in open(sys.argv[1], encoding="utf-8"):
    if line.startswith("wait "):
        wanted = int(line.split()[1])
        continue
    keys = ast.literal_eval(line)
    until((lambda: len(seen) - mark >= wanted) if wanted else at_prompt, f"before {keys!r}")
    wanted = 0
    mark = len(seen)
    os.write(fd, keys.encode())
while more(20):
    pass
_, status = os.waitpid(pid, 0)
print(seen.replace("\033", "^["))
print(f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}")
