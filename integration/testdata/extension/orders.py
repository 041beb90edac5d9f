"""Orders in a SQLite file of yours: cells read it, and change it when you agree."""

import sqlite3
from pathlib import Path
from typing import Annotated, Any, List, Union
from urllib.parse import quote

import cellblock

DATABASE = Path.home() / "orders.db"
MAX_ROWS = 1000

# What a statement may do that only reads. ATTACH and PRAGMA are not among it: they
# reach other files.
READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, getattr(sqlite3, "SQLITE_RECURSIVE", 33)}
CHANGES = READS | {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_TRANSACTION}

Value = Union[str, int, float, None]


def connect(mode, allowed, context):
    """A connection that does no more than allowed, and stops when the call does."""
    connection = sqlite3.connect("file:%s?mode=%s" % (quote(str(DATABASE)), mode), uri=True, timeout=5)
    connection.set_authorizer(lambda action, *about: sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY)
    context.on_cancel(connection.interrupt)
    return connection


def run(connection, sql, parameters):
    """Execute one statement; what SQLite refuses is an error that says so."""
    try:
        return connection.execute(sql, parameters)
    except (sqlite3.Error, sqlite3.Warning) as err:
        raise cellblock.HostError("sql", str(err), {"sql": sql}) from None


def query(sql: Annotated[str, "one SELECT"], parameters: List[Value] = [], limit: int = 100, context=None) -> Any:
    """Rows that a SELECT finds, each a dictionary; at most limit, and never more than 1000."""
    connection = connect("ro", READS, context)
    try:
        cursor = run(connection, sql, parameters)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row)) for row in cursor.fetchmany(max(0, min(limit, MAX_ROWS)))]
    finally:
        connection.close()


def declare(arguments, identity):
    """What execute will do: nothing is done here."""
    return cellblock.Action("orders.change", sql=arguments["sql"], parameters=arguments.get("parameters", []))


@cellblock.tool(preflight=declare, purposes="interactive", timeout=30, reason="orders are corrected from cells")
def execute(sql: Annotated[str, "one INSERT, UPDATE or DELETE"], parameters: List[Value] = [], context=None) -> int:
    """Change orders by one statement; the number of rows that it changed."""
    connection = connect("rw", CHANGES, context)
    try:
        with connection:
            return run(connection, sql, parameters).rowcount
    finally:
        connection.close()


def total(text, context):
    """How many orders there are."""
    return "%d orders" % query("select count(*) as n from orders", context=context)[0]["n"]


cellblock.register(
    cellblock.Extension(
        name="orders",
        tools=[query, execute],
        prompt="orders.query(sql=...) reads the table orders(item, amount) in SQLite; orders.execute(sql=...) changes it, when a person agrees.",
        slash={"orders": total},
    )
)
