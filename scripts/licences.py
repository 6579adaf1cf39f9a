"""Prints the licences of what is linked into the module: the crates of a release build and Rust's standard library."""

import json
import pathlib
import re
import subprocess


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked(metadata):
    """What a build links: whatever is needed by what is needed. Macros are not: they run in the compiler."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    found, ahead = set(), [metadata["resolve"]["root"]]
    while ahead:
        for dependency in nodes[ahead.pop()]["deps"]:
            package = packages[dependency["pkg"]]
            macro = any("proc-macro" in target["kind"] for target in package["targets"])
            if package["id"] not in found and not macro and any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                found.add(package["id"])
                ahead.append(package["id"])
    return sorted((packages[id] for id in found), key=lambda package: (package["name"], package["version"]))


def texts(package):
    return sorted(path for path in pathlib.Path(package["manifest_path"]).parent.glob("*") if re.match("(?i)(licen[sc]e|copying)", path.name))


def chosen(package, packages):
    """MIT where it is offered, else all that is asked; and the text of it that comes with the package or one of the same repository."""
    licence = "MIT" if "MIT" in re.split(r"/| OR ", package["license"]) else package["license"]
    near = [other for other in packages if other["repository"] == package["repository"]]
    found = texts(package) or [text for other in near for text in texts(other)]
    assert found, f"{package['name']} comes without the text of its licence"
    return licence, [path for path in found if licence != "MIT" or path.name == "LICENSE-MIT"] or found


host = re.search("host: (.*)", output("rustc", "-vV"))[1]
packages = linked(json.loads(output("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", host)))
print("redis-lease is under the licence in the file LICENSE. Into it are linked, each under the licence that follows:\n")
for package in packages:
    print(f"  {package['name']} {package['version']}: {chosen(package, packages)[0]}")
print("  Rust's standard library: MIT. Copyright (c) The Rust Project Contributors; its text is that of the MIT licence below")
for package in packages:
    print(f"\n\n{'=' * 100}\n{package['name']} {package['version']}\n")
    for text in chosen(package, packages)[1]:
        print(text.read_text().strip())
