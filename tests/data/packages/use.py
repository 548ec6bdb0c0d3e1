"""Uses packages that skills ask for, and prints what any Python must print. No line depends on time, place or version."""
import datetime
import io
import json
import os

import attr
import bs4
import dateutil.parser
import dateutil.relativedelta
import dateutil.rrule
import jinja2
import markdown
import openpyxl
import pydantic
import pypdf
import requests
import tabulate
import yaml
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

# pypdf: a page with text is made, stored, read again.
writer = pypdf.PdfWriter()
page = writer.add_blank_page(width=200, height=100)
font = DictionaryObject(
    {
        NameObject("/Type"): NameObject("/Font"),
        NameObject("/Subtype"): NameObject("/Type1"),
        NameObject("/BaseFont"): NameObject("/Helvetica"),
    }
)
page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})})
content = DecodedStreamObject()
content.set_data(b"BT /F1 12 Tf 20 50 Td (Quarter three) Tj ET")
page[NameObject("/Contents")] = writer._add_object(content)
writer.add_metadata({"/Title": "Report"})
path = os.path.join(os.environ["WORKSPACE_OUT"], "report.pdf")
writer.write(path)
reader = pypdf.PdfReader(path)
print("pypdf", len(reader.pages), reader.metadata.title, repr(reader.pages[0].extract_text()))

# openpyxl
book = openpyxl.Workbook()
sheet = book.active
sheet.title = "Sales"
for row in (("city", "amount", "day"), ("Bern", 10.5, datetime.date(2024, 2, 29)), ("Zürich", 4, None)):
    sheet.append(row)
sheet["B4"] = "=SUM(B2:B3)"
path = os.path.join(os.environ["WORKSPACE_OUT"], "sales.xlsx")
book.save(path)
again = openpyxl.load_workbook(path)["Sales"]
print("openpyxl", again.dimensions, [[cell for cell in row] for row in again.iter_rows(values_only=True)])

# jinja2 (with markupsafe)
template = jinja2.Environment(autoescape=True).from_string(
    "{% for name, n in rows|dictsort %}{{ loop.index }}.{{ name|upper }}={{ '%.1f'|format(n) }};{% endfor %}{{ evil }}"
)
print("jinja2", template.render(rows={"b": 2, "a": 1.25}, evil="<b>&\"'"))

# python-dateutil
start = dateutil.parser.parse("29 Feb 2024 13:05+02:00")
print("dateutil", start.isoformat(), (start + dateutil.relativedelta.relativedelta(years=1)).date())
days = dateutil.rrule.rrule(dateutil.rrule.MONTHLY, count=4, bymonthday=-1, dtstart=datetime.datetime(2024, 1, 1))
print("rrule", [day.date().isoformat() for day in days])

# pyyaml
data = yaml.safe_load("a: [1, 2.5, yes, null]\nb: |\n  text\n  ü\nc: &x {d: 2024-02-29}\ne: *x\n")
print("yaml", data)
print(yaml.safe_dump(data, allow_unicode=True, sort_keys=True), end="")
try:
    yaml.safe_load("a: [1")
except yaml.YAMLError as error:
    print("yaml error", type(error).__name__, error.problem_mark.line, error.problem_mark.column)

# markdown
print("markdown", markdown.markdown("# T\n\n|a|b|\n|-|-|\n|1|*2*|\n\n- x\n- `y`\n", extensions=["tables"]))

# beautifulsoup4 (with soupsieve)
soup = bs4.BeautifulSoup("<div class='a'><p>one<p>two <b>x</b><a href='/y?z=1&amp;w'>l</a></div>", "html.parser")
print("bs4", [p.get_text(" ", strip=True) for p in soup.select("div.a p")], soup.a["href"], soup.prettify()[:30])

# tabulate
print(tabulate.tabulate([["Bern", 10.5], ["Zürich", 4]], headers=["city", "n"], tablefmt="github"))

# requests, as far as it goes without a network
session = requests.Session()
session.headers["User-Agent"] = "test"
request = requests.Request("POST", "http://example.invalid/ä b", params={"q": ["ü", "1 2"]}, json={"a": 1})
prepared = session.prepare_request(request)
print("requests", prepared.method, prepared.url, prepared.body, prepared.headers["Content-Type"])
response = requests.Response()
response.status_code, response.raw = 404, io.BytesIO(b'{"x": [1, "\xc3\xbc"]}')
try:
    print(response.json())
    response.raise_for_status()
except requests.HTTPError as error:
    print("HTTPError", error)


# attrs
@attr.define
class Point:
    x: int = attr.field(validator=attr.validators.instance_of(int))
    y: list = attr.Factory(list)


print("attrs", Point(1), attr.asdict(Point(2, [3])), Point(1) == Point(1))
try:
    Point("1")
except TypeError as error:
    print("attrs", error.args[0][:40])


# pydantic 1
class Item(pydantic.BaseModel):
    name: str
    price: float = pydantic.Field(gt=0)
    tags: list = []


class Order(pydantic.BaseModel):
    items: list[Item]
    day: datetime.date


order = Order.parse_raw('{"items": [{"name": "a", "price": "1.5"}], "day": "2024-02-29"}')
print("pydantic", order.json(), order.items[0].price)
try:
    Order(items=[{"name": "a", "price": -1}, {}], day="no")
except pydantic.ValidationError as error:
    print("pydantic", json.dumps(error.errors(), sort_keys=True))
