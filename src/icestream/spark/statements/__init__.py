"""SQL statements on Iceberg tables: the names of tables are looked up in PyIceberg's catalogs.

```python
import icestream.spark as ice_spark

frame = ice_spark.sql("SELECT region, sum(price) FROM shop.orders WHERE price > 9 GROUP BY 1")
report = ice_spark.sql("INSERT INTO shop.regions SELECT DISTINCT region FROM shop.orders")
```

Spark runs the text of a query as it was written. Only the names of Iceberg tables are replaced, by
frames that read these tables. sqlglot parses the text to find the names, the columns that the query
needs, and the filters that the read can apply. Spark applies all filters again.

```
run.py              `sql`: decides which statement it is, and runs it
words.py            the words of a statement, and a cursor over them
names.py            finds tables by name
query.py            a query, with frames in place of the names of tables
sources.py          the tables of a query, and the columns that it needs of each
pushdown.py         the filters of a query that a read may apply
conditions.py       conditions of SQL as PyIceberg expressions that select the same rows
constants.py        constants of SQL as Python values
assignment.py       casts a frame to the columns of a table, as Spark's store assignment does
insert_rows.py      INSERT INTO and INSERT OVERWRITE
change_rows.py      DELETE FROM and UPDATE
merge_into.py       MERGE INTO
table_ddl.py        CREATE TABLE and DROP TABLE
metadata_tables.py  tables such as `db.t.snapshots`
```
"""
