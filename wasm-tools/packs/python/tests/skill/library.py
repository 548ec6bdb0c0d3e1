"""The parts of the library that hang on something compiled in."""

import asyncio
import bz2
import datetime
import decimal
import gzip
import hashlib
import io
import lzma
import sqlite3
import unicodedata
import unittest
import xml.etree.ElementTree
import zlib
import zoneinfo

text = b"text " * 1000
for codec in (bz2, gzip, lzma, zlib):
    assert codec.decompress(codec.compress(text)) == text, codec
assert decimal.Decimal("0.1") + decimal.Decimal("0.2") == decimal.Decimal("0.3")
assert xml.etree.ElementTree.fromstring("<a><b>\u00fc</b></a>").find("b").text == "\u00fc"
assert unicodedata.name("\u00fc") == "LATIN SMALL LETTER U WITH DIAERESIS"
assert hashlib.sha256(b"").hexdigest().startswith("e3b0c44298fc1c14")
assert hashlib.blake2b(b"").hexdigest().startswith("786a02f742015903")
assert sqlite3.connect(":memory:").execute("select sqrt(16)").fetchone() == (4.0,)
summer = datetime.datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
assert summer.utcoffset() == datetime.timedelta(hours=2)


async def both():
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(asyncio.sleep(0.001, value)) for value in (1, 2)]
    return [task.result() for task in tasks]


assert asyncio.run(both()) == [1, 2]


class Case(unittest.TestCase):
    def test_right(self):
        self.assertEqual(1, 1)

    def test_wrong(self):
        self.assertEqual(1, 2)


result = unittest.TextTestRunner(io.StringIO()).run(unittest.defaultTestLoader.loadTestsFromTestCase(Case))
assert (result.testsRun, len(result.failures)) == (2, 1)
print("library in order")
