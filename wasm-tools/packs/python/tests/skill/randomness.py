"""Nothing that should be random may have been frozen with the interpreter."""

import os
import random
import secrets
import sqlite3
import tempfile
import uuid

print("random", random.random())
print("Random", random.Random().random())
print("urandom", os.urandom(8).hex())
print("secrets", secrets.token_hex(8))
print("uuid4", uuid.uuid4())
print("uuid1", uuid.uuid1())
print("node", uuid.getnode())
print("tempfile", os.path.basename(tempfile.mkstemp()[1]))
print("sqlite", sqlite3.connect(":memory:").execute("select hex(randomblob(8))").fetchone()[0])
