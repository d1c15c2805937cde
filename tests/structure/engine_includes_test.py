#!/usr/bin/env python3
"""No include runs upward inside engine/, and none from engine/ or kernels/ to what stands above them.

usage: engine_includes_test.py REPOSITORY
"""

import pathlib
import re
import sys
import tempfile

# From the ground up. A file may include files of its own folder and of floors below its own, not those beside it.
# Files of engine/ itself are named one by one.
FLOORS = [
    ["kernels"],
    ["engine/types.hpp"],
    ["engine/step"],
    ["engine/request"],
    ["engine/stats.hpp", "engine/speculation_config.hpp", "engine/speculation_config.cpp"],
    ["engine/metrics", "engine/trace"],
    ["engine/view"],
    ["engine/config.hpp", "engine/config.cpp"],
    ["engine/text", "engine/sampling", "engine/weights"],
    ["engine/layers", "engine/grammar"],
    ["engine/models", "engine/calibration", "engine/adapters"],
    ["engine/memory", "engine/scheduling", "engine/execution", "engine/output"],
    ["engine/placement"],
    ["engine/routing"],
    ["engine/journal"],
    ["engine/model_pool"],
]

OURS = ("kernels/", "engine/", "actors/", "io/", "pagoda/", "apps/", "tests/")

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def room_of(path):
    """The room in FLOORS that a file belongs to; None when no floor has it."""
    parts = path.split("/")
    room = parts[0] if parts[0] == "kernels" else "/".join(parts[:2])
    return room if room in FLOOR_OF else None


def problems_of(path, text):
    room = room_of(path)
    if room is None:
        return [f"{path}: no floor has its folder: give it one in {pathlib.Path(__file__).name}"]
    problems = []
    for included in INCLUDE.findall(text):
        if not included.startswith(OURS):
            continue
        target = room_of(included)
        # engine/config.hpp and engine/config.cpp are one room.
        same = target is not None and (target == room or target.split(".")[0] == room.split(".")[0])
        if same:
            continue
        if target is None or FLOOR_OF[target] >= FLOOR_OF[room]:
            problems.append(f"{path}: includes {included}, which does not lie below {room}")
    return problems


def problems_in(root):
    problems = []
    num_files = 0
    for folder in ("kernels", "engine"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in (".hpp", ".cpp", ".cuh", ".cu"):
                num_files += 1
                problems += problems_of(file.relative_to(root).as_posix(), file.read_text())
    return problems, num_files


def check_that_violations_are_found():
    found = [
        ("engine/layers/linear.hpp", '#include "engine/models/model.hpp"'),
        ("engine/memory/swap.cpp", '#include "engine/output/output_core.hpp"'),
        ("engine/weights/a.hpp", '  #  include "engine/text/regex.hpp"'),
        ("engine/step/plan.hpp", '#include "engine/stats.hpp"'),
        ("engine/types.hpp", '#include "engine/config.hpp"'),
        ("engine/request/a.hpp", '#include "engine/config.hpp"'),
        ("engine/models/a.cpp", '#include "io/model_files/checkpoint.hpp"'),
        ("engine/models/a.cpp", '#include "engine/scheduling/plan.hpp"'),
        ("kernels/device.hpp", '#include "engine/types.hpp"'),
        ("engine/unheard_of/a.cpp", ""),
    ]
    allowed = [
        ("engine/models/llama.cpp", '#include "engine/models/families.hpp"\n#include "engine/layers/mlp.hpp"'),
        ("engine/config.cpp", '#include "engine/config.hpp"\n#include <vector>\n#include "kernels/result.hpp"'),
        ("engine/layers/linear.cpp", '// #include "engine/models/model.hpp"'),
    ]
    with tempfile.TemporaryDirectory() as folder:
        for cases, is_wrong in ((found, True), (allowed, False)):
            for path, text in cases:
                root = pathlib.Path(folder) / path.replace("/", "_") / str(len(text))
                file = root / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
                problems, _ = problems_in(root)
                assert bool(problems) == is_wrong, (path, text, problems)


def main():
    check_that_violations_are_found()
    problems, num_files = problems_in(pathlib.Path(sys.argv[1]))
    assert num_files > 100, "the sources are not there"
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
