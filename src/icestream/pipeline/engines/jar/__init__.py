"""The engine `iceberg-jar`: Spark reads the sources, and Iceberg's own runtime writes them.

```
jar_engine.py   append, replace and merge as statements and writes of the runtime
jar_catalog.py  a PyIceberg catalog as a catalog of the runtime
```
"""
