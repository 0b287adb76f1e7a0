"""Every eval by the protocol, at small sizes, against finite differences: test_tool.py BUILD_FOLDER. Needs NumPy."""
import sys

try:
    import numpy  # noqa: F401
except ImportError:
    print("there is no NumPy: cmake/setup.sh installs it for tests")
    sys.exit(5)

import data
import oracle
from session import Session, runs_of


def main(build):
    tool = Session([f"{build}/bench/gradbench_tool"])
    failures = []

    def check(good, what):
        if not good:
            failures.append(what)

    check(tool.tool == "xhat", "the tool says its name")
    for module, (functions, inputs) in data.board(small=True).items():
        check(tool.define(module)["success"], f"{module} is defined")
        for name, make in inputs.items():
            given = make()
            for function in functions:
                answer = tool.evaluate(module, function, given, min_runs=3)
                problems = [answer.get("error", "no error")]
                if answer["success"]:
                    problems = oracle.mismatches(oracle.expected(module, function, given), answer["output"])
                    check(len(runs_of(answer)) == 3, f"{module} {function} runs 3 times")
                tool.analysis(tool.id - 1, problems)
                print(f"{module} {name} {function}: {'valid' if not problems else problems}")
                if problems:
                    failures.append(f"{module} {name} {function}")
                elif function == functions[-1]:
                    check(oracle.mismatches(oracle.expected(module, function, given), scaled(answer["output"])), f"a wrong {module} is found")
    for module, given in data.DESCENTS.items():
        want = getattr(oracle, module)(given)
        for modes in data.MODES:
            answer = tool.evaluate(module, modes, given)
            problems = oracle.mismatches(want, answer["output"]) if answer["success"] else [answer["error"]]
            print(f"{module} {modes}: {'valid' if not problems else problems}")
            check(not problems, f"{module} {modes}")
    check(not tool.define("none")["success"], "an unknown module is refused")
    check(not tool.evaluate("lse", "none", {"x": [1.0]})["success"], "an unknown function is refused")
    answer = tool.evaluate("lse", "primal", {"x": []})
    check("error" in answer or answer["success"], "what cannot be computed is answered")
    answer = tool.evaluate("gmm", "objective", {"d": 2})
    check(not answer["success"] and answer["error"], "a missing field is an error")
    answer = tool.evaluate("lse", "primal", {"x": [0.0, 1.0]}, min_seconds=0.01)
    check(sum(runs_of(answer)) >= 0.01e9, "runs go on for the seconds asked for")
    tool.close()
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


def scaled(output):
    """The answer with everything a hundredth larger."""
    if isinstance(output, dict):
        return {key: scaled(value) for key, value in output.items()}
    if isinstance(output, list):
        return [scaled(value) for value in output]
    return output * 1.01 + 0.01


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
