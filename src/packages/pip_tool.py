"""Has pip choose and fetch wheels for another Python than the one it runs on; see mod.rs.

Reads a job from stdin, leaves wheels in $WORKSPACE_OUT. Nothing is ever built or installed: only wheels are fetched.
Exit codes: 0 done; 41 this Python has no pip; 42 pip said no (its last lines are on stderr); 43 the script wants another
Python; 44 this pip can't choose for another Python.
"""
import configparser
import json
import os
import shutil
import sys


def merged_configuration(folder):
    """The files of the machine, the later over the earlier, as one: pip takes one file by name."""
    merged = configparser.RawConfigParser()
    names = sorted(name for name in os.listdir(folder) if name.startswith("pip-") and name.endswith(".conf"))
    for name in names:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            merged.read_file(file)
    path = os.path.join(os.environ["TMPDIR"], "pip.conf")
    with open(path, "w", encoding="utf-8") as file:
        merged.write(file)
    return path


def main():
    job = json.load(sys.stdin)
    os.environ["PIP_CONFIG_FILE"] = merged_configuration(os.environ["WORKSPACE_IN"])
    os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    given = os.environ["WORKSPACE_IN"]
    certificates = os.path.join(given, "certificates.pem")
    if os.path.exists(certificates):
        for name in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
            os.environ[name] = certificates
    links = [os.path.join(given, name) for name in sorted(os.listdir(given)) if name.startswith("links-")]
    if links:
        os.environ["PIP_FIND_LINKS"] = " ".join([os.environ.get("PIP_FIND_LINKS", "")] + links).strip()
    os.environ["PIP_NO_INPUT"] = "1"
    try:
        from pip._internal.cli.main import main as pip
    except ImportError:
        return 41
    try:
        from pip._vendor.packaging import markers
        from pip._vendor.packaging.specifiers import SpecifierSet

        # pip answers conditions such as `python_version < "3.12"` for the Python it runs on, whatever the options say.
        if not callable(markers.default_environment):
            return 44
        markers.default_environment = lambda: dict(job["markers"])
        if markers.Marker("python_version == '%s'" % job["markers"]["python_version"]).evaluate() is not True:
            return 44
    except (ImportError, AttributeError):
        return 44
    for bound in job["requires_python"]:
        if job["markers"]["python_full_version"] not in SpecifierSet(bound, prereleases=True):
            return 43

    out = os.environ["WORKSPACE_OUT"]
    common = ["download", "--quiet", "--no-cache-dir", "--progress-bar", "off", "--only-binary", ":all:"]
    wanted = os.path.join(os.environ["TMPDIR"], "requirements.txt")
    with open(wanted, "w", encoding="utf-8") as file:
        file.write("\n".join(job["requirements"]) + "\n")
    locked = ["--require-hashes", "--no-deps"] if job["locked"] else []
    if pip(common + job["options"] + locked + ["--dest", out, "--requirement", wanted]) != 0:
        return 42
    if not job["pure"] or job["locked"]:
        return 0
    # A wheel without native code is better than one that its native code is taken from.
    for name in sorted(os.listdir(out)):
        if not name.endswith(".whl") or name.endswith("-none-any.whl"):
            continue
        package, version = name.split("-")[:2]
        other = os.path.join(os.environ["TMPDIR"], "pure-" + package)
        pure = ["--no-deps", "--implementation", "py", "--abi", "none", "--platform", "any"]
        pure += ["--python-version", job["markers"]["python_version"], "--dest", other]
        # What it says when there is none is no error of ours.
        if pip(common + ["--quiet", "--quiet"] + pure + [package + "==" + version]) == 0:
            os.unlink(os.path.join(out, name))
            for found in os.listdir(other):
                shutil.move(os.path.join(other, found), os.path.join(out, found))
    return 0


sys.exit(main())
