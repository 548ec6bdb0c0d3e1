#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "httpx<1",
#     "rich",
# ]
# ///
import httpx

print(httpx.__version__)
