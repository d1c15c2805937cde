#!/usr/bin/env python3
"""Prints the resources of each CUDA kernel of a built library, per architecture: registers, shared memory, stack.

  tools/cuda_resource_usage.py build/cuda/kernels/libpagoda_kernels.a           the table
  tools/cuda_resource_usage.py LIBRARY --check tools/cuda_resource_bounds.json  exit code 1 when a bound is exceeded
  tools/cuda_resource_usage.py LIBRARY --write tools/cuda_resource_bounds.json  writes the present usage as bounds

A stack that is not 0 means spilled registers or arrays that the compiler could not keep in registers. There is one line
for all variants (template arguments) of a kernel: the maximum of all. Needs cuobjdump (CUDA toolkit) and c++filt.
"""
import argparse
import collections
import json
import re
import shutil
import subprocess
import sys

FIELDS = {"registers": "REG", "shared": "SHARED", "stack": "STACK"}


def kernel_name(demangled):
    """Returns the function's own name: norm_kernel of `a::(anonymous namespace)::norm_kernel<true>(Args)`."""
    text = demangled.replace("(anonymous namespace)", "anonymous")
    text = re.sub(r"^void ", "", text)
    end = min((i for i, c in enumerate(text) if c in "<("), default=len(text))
    return text[:end].split("::")[-1]


def read_usage(cuobjdump, library):
    """Returns [(architecture, kernel, {field: number})] of every kernel variant."""
    dump = subprocess.run([cuobjdump, "--dump-resource-usage", library], capture_output=True, text=True)
    if dump.returncode != 0:
        sys.exit(f"cuda_resource_usage: cuobjdump failed on {library}: {dump.stderr.strip()}")
    architecture, function, found = None, None, []
    for line in dump.stdout.splitlines():
        if match := re.match(r"arch = (\S+)", line):
            architecture = match[1]
        elif match := re.match(r"\s*Function (\S+):", line):
            function = match[1]
        elif function and (match := re.match(r"\s*REG:", line)):
            numbers = dict(re.findall(r"(\w+):(\d+)", line))
            found.append((architecture, function, {field: int(numbers[key]) for field, key in FIELDS.items()}))
            function = None
    names = subprocess.run(["c++filt"], input="\n".join(function for _, function, _ in found), capture_output=True,
                           text=True, check=True).stdout.splitlines()
    return [(architecture, kernel_name(name), usage) for (architecture, _, usage), name in zip(found, names)]


def most(usages):
    return {field: max(usage[field] for usage in usages) for field in FIELDS}


def bounds_of(usages):
    """Returns the present usage as bounds. Registers are rounded up to eights, since the device allocates them in
    eights."""
    top = most(usages)
    return {**top, "registers": -(-top["registers"] // 8) * 8}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--check", metavar="FILE", help="bounds that no kernel may exceed, and each kernel must have")
    parser.add_argument("--write", metavar="FILE", help="write the bounds")
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump") or "/usr/local/cuda/bin/cuobjdump")
    options = parser.parse_args()
    if not shutil.which(options.cuobjdump):
        sys.exit("cuda_resource_usage: cuobjdump was not found; it comes with the CUDA toolkit (--cuobjdump PATH)")

    variants = collections.defaultdict(list)
    for architecture, kernel, usage in read_usage(options.cuobjdump, options.library):
        variants[kernel, architecture].append(usage)
    if not variants:
        sys.exit(f"cuda_resource_usage: {options.library} holds no CUDA kernels")

    print(f"{'kernel':<40} {'arch':<7} {'variants':>8} {'registers':>9} {'shared B':>9} {'stack B':>8}")
    for (kernel, architecture), usages in sorted(variants.items()):
        top = most(usages)
        print(f"{kernel:<40} {architecture:<7} {len(usages):>8} {top['registers']:>9} {top['shared']:>9} "
              f"{top['stack']:>8}")

    by_kernel = collections.defaultdict(list)
    for (kernel, _), usages in variants.items():
        by_kernel[kernel] += usages
    if options.write:
        with open(options.write, "w") as file:
            json.dump({kernel: bounds_of(usages) for kernel, usages in sorted(by_kernel.items())}, file, indent=2)
            file.write("\n")
    if options.check:
        with open(options.check) as file:
            bounds = json.load(file)
        problems = [f"{kernel} has no bounds in {options.check}" for kernel in by_kernel if kernel not in bounds]
        for kernel, usages in sorted(by_kernel.items()):
            for field, number in most(usages).items():
                if kernel in bounds and number > bounds[kernel][field]:
                    problems.append(f"{kernel}: {number} {field}, the bound is {bounds[kernel][field]}")
        for problem in problems:
            print(f"cuda_resource_usage: {problem}", file=sys.stderr)
        sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
