import sqlite3

import cellblock
import orders
import pytest


@pytest.fixture
def context(tmp_path, monkeypatch):
    monkeypatch.setattr(orders, "DATABASE", tmp_path / "orders.db")
    with sqlite3.connect(orders.DATABASE) as connection:
        connection.executescript("create table orders(item, amount); insert into orders values ('tea', 3), ('salt', 1)")
    connection.close()
    return cellblock.testing.context()


def test_rows_are_dictionaries(context):
    assert orders.query("select item from orders where amount > ?", [1], context=context) == [{"item": "tea"}]


@pytest.mark.parametrize("sql", ["delete from orders", "attach '/etc/passwd' as other", "pragma journal_mode = wal"])
def test_a_query_only_reads(context, sql):
    with pytest.raises(cellblock.HostError):
        orders.query(sql, context=context)


def test_a_change_is_declared_and_counted(context):
    assert orders.declare({"sql": "delete from orders"}, context.identity)["action"] == "orders.change"
    assert orders.execute("delete from orders where item = 'salt'", context=context) == 1
    assert len(orders.query("select * from orders", context=context)) == 1
