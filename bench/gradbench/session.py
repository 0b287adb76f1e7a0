"""One conversation with a tool, as GradBench's intermediary leads it."""
import json
import subprocess
import tempfile
from pathlib import Path


class Session:
    def __init__(self, command, env=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.id = 0
        self.tool = self.send({"kind": "start"}).get("tool")

    def send(self, message):
        message = {"id": self.id, **message}
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"{self.process.args[0]} ended")
        answer = json.loads(line)
        if answer["id"] != self.id:
            raise ValueError(f"answer {answer['id']} to message {self.id}")
        self.id += 1
        return answer

    def define(self, module):
        return self.send({"kind": "define", "module": module})

    def evaluate(self, module, function, data, min_runs=1, min_seconds=0.0):
        return self.send({"kind": "evaluate", "module": module, "function": function,
                          "input": {**data, "min_runs": min_runs, "min_seconds": min_seconds}})

    def analysis(self, of, problems):
        self.send({"kind": "analysis", "of": of, "valid": not problems, **({"error": "\n".join(problems)} if problems else {})})

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


class Programs:
    """GradBench's tools in C++ are a program for each module, which is given a file and a function: the folder bin/ of such a tool as a session."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def define(self, module):
        return {"success": (self.folder / module).exists()}

    def evaluate(self, module, function, data, min_runs=1, min_seconds=0.0):
        with tempfile.NamedTemporaryFile("w") as file:
            json.dump({**data, "min_runs": min_runs, "min_seconds": min_seconds}, file)
            file.flush()
            done = subprocess.run([self.folder / module, file.name, function], capture_output=True, text=True)
        if done.returncode:
            return {"success": False, "error": done.stderr}
        output, *timings = map(json.loads, done.stdout.splitlines())
        return {"success": True, "output": output, "timings": timings}

    def close(self):
        pass


def runs_of(answer):
    return [t["nanoseconds"] for t in answer["timings"] if t["name"] == "evaluate"]
