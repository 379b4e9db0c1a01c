"""llama.cpp in a process of its own (peer_llama.py), asked by lines of JSON."""
import json
import os
import pathlib
import subprocess
import sys


class Died(Exception):
    pass


class LlamaProcess:
    def __init__(self, **environment):
        self.process = subprocess.Popen([sys.executable, str(pathlib.Path(__file__).parent / "peer_llama.py")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**environment, **os.environ})

    def ask(self, **request):
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self.process.stdout.readline()
        if not line:
            raise Died(f"llama.cpp ended with status {self.process.wait()}")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
