"""A skill as they are: CSV and JSON in, a report, a zip and a database out."""

import csv
import json
import pathlib
import sqlite3
import zipfile

source, target = pathlib.Path("/workspace/in"), pathlib.Path("/workspace/out")
rates = json.loads((source / "rates.json").read_text())
with (source / "sales.csv").open(newline="") as file:
    rows = [(row["city"], int(row["amount"]) * rates[row["currency"]]) for row in csv.DictReader(file)]

database = sqlite3.connect(target / "sales.db")
database.execute("create table sales (city text, amount real)")
database.executemany("insert into sales values (?, ?)", rows)
database.commit()
totals = database.execute("select city, sum(amount) from sales group by city order by city").fetchall()
database.close()

report = "".join(f"{city}: {amount:.2f}\n" for city, amount in totals)
(target / "report.txt").write_text(report)
with zipfile.ZipFile(target / "report.zip", "w", zipfile.ZIP_DEFLATED) as archive:
    archive.write(target / "report.txt", "report.txt")
with zipfile.ZipFile(target / "report.zip") as archive:
    print(archive.read("report.txt").decode(), end="")
check = sqlite3.connect(target / "sales.db").execute("select count(*) from sales").fetchone()
print("rows", *check)
