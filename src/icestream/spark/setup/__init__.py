"""Setup: a Spark session that runs icestream.

`spark_session` finds Java, starts Spark and registers the format. Your own session needs only
`registration`, and `shipping` if its executors lack icestream.

```
spark_session.py  starts a session with settings for Arrow and a memory limit
java.py           finds Java on the machine, or uses the one that pip installs
registration.py   registers `format("icestream")` in a session
shipping.py       sends icestream's code to executors that lack it
settings.py       names of settings, values to hide, and the defaults of a session
installed.py      imports PySpark, or says how to install it
```
"""
