"""Says what this Python is, as one JSON object on stdout: see target.rs."""
import json
import os
import platform
import sys
import sysconfig


def text(get):
    # Parts of the platform module start programs or read files that a sandbox doesn't have.
    try:
        return str(get())
    except Exception:
        return ""


version = ".".join(str(part) for part in sys.version_info[:3])
libc = ""
if sys.platform == "linux":
    if "musl" in text(lambda: sysconfig.get_config_var("SOABI")) or "musl" in text(
        lambda: sysconfig.get_config_var("HOST_GNU_TYPE")
    ):
        libc = "musl"
    else:
        libc = text(lambda: os.confstr("CS_GNU_LIBC_VERSION"))
print(
    json.dumps(
        {
            "version": list(sys.version_info[:2]),
            "flags": getattr(sys, "abiflags", ""),
            "machine": text(platform.machine),
            "libc": libc,
            "markers": {
                "implementation_name": sys.implementation.name,
                "implementation_version": ".".join(str(part) for part in sys.implementation.version[:3]),
                "os_name": os.name,
                "platform_machine": text(platform.machine),
                "platform_python_implementation": text(platform.python_implementation),
                "platform_release": text(platform.release),
                "platform_system": text(platform.system),
                "platform_version": text(platform.version),
                "python_full_version": version,
                "python_version": ".".join(str(part) for part in sys.version_info[:2]),
                "sys_platform": sys.platform,
            },
        }
    )
)
